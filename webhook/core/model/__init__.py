"""The words everything else is said in.

What asks (``gang``, ``pods``), how much (``amounts``, ``quantity``), what is allowed (``policy``, ``settings``), our
``names`` on objects, ``moments``, and what is kept once for all gangs that have it alike (``shared``). Why a gang waits
(``reasons``, ``blockers``, and ``neighbours`` for what strangers are told of it), what would wake it (``wake_keys``),
why it is stopped (``eviction``), and what is wrong with something that somebody wrote (``problem``).
"""
