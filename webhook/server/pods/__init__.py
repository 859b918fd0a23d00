"""Reviews of pods: gang pods within their reservation, loose pods within what reservations leave of the fences.

``validate`` is the way in; ``gang_pods`` and ``loose_pods`` decide; ``tally`` has the pods let pass and not seen yet.
"""
