"""What is on every node of one cluster, kept current by watches: ``occupancy`` feeds ``core.nodes``.

``node`` and ``daemon_set`` project what the API server sends to the few facts that placement needs.
"""
