"""A hub: places its jobs whole in one of many clusters, by the protocol in ``core.fleet``.

In reading order: ``credentials`` (how a member is reached), ``policies`` (what users say about where, pure),
``members`` (what is asked of one member and written there), ``swept`` (what is known of each since it was swept),
``jobs`` (one job), ``watching`` (what wakes it), ``hub`` (all jobs), ``sweeping`` (what no record speaks of), ``home``
(whether the hub's cluster is the one it was), ``lost`` (a member that somebody gives up), ``dead_man`` (a member that
has surely stopped by itself), ``roster`` (who the members are). ``processes.hub`` runs it. It imports nothing of a
cluster's own two processes, nor they of it.
"""
