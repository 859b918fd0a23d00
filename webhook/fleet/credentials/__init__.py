"""A member's credentials: what a kubeconfig may be (``kubeconfig``), the ``connection`` that it makes, how one is made
(``account``), its ``expiry``.
"""
