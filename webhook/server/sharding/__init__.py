"""Which replica answers for a namespace's pods, who the replicas are, and the one hop between them."""
