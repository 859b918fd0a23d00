"""What is free on the nodes: on each of them, for pods of each shape, in each domain.

``node`` is what a node has and ``shape`` what a pod asks of one; ``capacity`` keeps what is free: ``ranking`` by shape,
``domains`` by labels, less each ``allotment`` (where a gang's pods are to go) and what is ``claimed`` by gangs whose
victims are still there. ``columns`` has the same resource by resource, to look at all nodes at once,
and ``changes`` which changed since somebody looked. ``eligible`` are the nodes that could ever hold a shape,
and ``tiers`` are the levels of racks that HyperNodes describe.
"""
