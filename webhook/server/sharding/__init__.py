"""Which replica answers for a namespace's pods (``ownership``), who the replicas are (``peers``), and the one hop
between them: ``forward`` passes a review on, ``hop`` shows that a replica did.
"""
