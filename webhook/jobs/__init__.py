"""Job kinds: how an API object becomes a gang, when it is gated, and the patches that hold, start and stop it.

Kinds are data (``kinds``, ``entries``, ``registry``); everything else here is pure functions over them: ``reading``
(object to ``JobRecord``), ``gating`` (does it wait for Tutti), ``patches`` (JSON Patch lists), ``pod_requests`` (what
one pod costs) and ``compute_class`` (rules a platform has for its pods).
"""
