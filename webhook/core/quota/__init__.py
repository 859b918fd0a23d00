"""The two limits a gang must fit: the quota tree, borrowable, and the fences (ResourceQuota), which are not.

``tree`` has the arithmetic of cohorts, ``allocations`` who holds what, ``loans`` which queue lends to which,
``usage_decay`` what was used lately, ``fence`` one ResourceQuota and ``fences`` those of all namespaces.
"""
