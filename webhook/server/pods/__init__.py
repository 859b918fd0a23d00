"""Reviews of pods: gang pods within their reservation, loose pods within what reservations leave of the fences.

``validate`` is the way in and ``review`` what it has read; ``gang_pods`` (with ``group_checks`` for plain pods, and
``excess`` for what is too much) and ``loose_pods`` decide, ``changes`` about pods that exist; ``placed`` makes a pod
prefer its nodes; ``tally`` has the pods let pass and not seen yet.
"""
