"""The read API on the wire: ``app`` is the way in, and ``front_proxy`` says which proxy it trusts.

``group`` says what is served, ``discovery``, ``openapi`` and ``schemas`` tell clients of it; ``selecting`` finds what a
request asks for, ``tables`` and ``watching`` are how kubectl gets it, ``responses`` what goes wrong.
"""
