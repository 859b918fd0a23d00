"""Whether a gang fits the nodes, where it goes, and why it does not fit. What is free is kept by ``core.nodes``.

``fit`` places a gang (``near`` its sets that are to be close together, ``backtracking`` a second try) on an ``overlay``
of the nodes, or says how it is ``misplaced``, which ``explain``, ``beyond``
and ``holders`` put in words. Whether stopping others
would help: ``ceilings`` and ``prefilter`` say a certain and cheap no, ``vacated`` tries it gang by gang.
"""
