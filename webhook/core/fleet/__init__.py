"""One gang, whole, in one of many clusters: the protocol between a hub and its members, as values and pure functions.

In reading order: ``dispatch`` (where a gang is, and the table of what may follow), ``text`` (how that is written),
``sight`` (what was read in a member), ``permit`` (what a member asks before it starts a copy), ``proof`` (that
nothing is left of a copy), ``silence`` (when a silent member has surely stopped), ``steps`` (what the hub does next
about one gang), ``strays`` (what it does about a copy that no dispatch speaks of).
"""
