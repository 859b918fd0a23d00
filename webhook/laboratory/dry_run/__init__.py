"""The engine run dry: files instead of a cluster, cycles instead of a loop (``tutti try``).

``files`` reads documents, ``world`` makes of them what a process would know of a cluster, ``workloads`` reads Kueue's
Workload objects, ``cycles`` runs the production engine over it, ``report`` says what came of it and ``tables`` shows it
to people. Nothing here decides anything.
"""
