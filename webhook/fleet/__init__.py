"""A hub: places its jobs whole in one of many clusters, by the protocol in ``core.fleet``.

In reading order: ``kubeconfig`` (what a member's credentials may be, pure), ``account`` (how they are made),
``copies`` (objects and annotations, pure), ``shared_read`` (one read for all who ask at once), ``member`` (what is
asked of one member and written there), ``choice`` (which member is asked next, pure), ``propagation`` (users'
policies: where, and after a failure; pure), ``multikueue`` (which members a queue names, pure), ``told`` (the event
that says where a gang runs, pure), ``job`` (one job, from look to step), ``watching`` (what wakes it), ``hub`` (all
jobs, and the sweeps; ``counting`` counts what comes of its offers), ``lost`` (a member that somebody gives up),
``dead_man`` (a member that has surely stopped by itself), ``membership`` (who the members are; ``expiry``
until when, pure), ``process`` (``tutti hub``). It imports nothing of a cluster's own two processes, nor they of it.
"""
