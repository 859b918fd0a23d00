"""A hub: places its jobs whole in one of many clusters, by the protocol in ``core.fleet``.

In reading order: ``copies`` (objects and annotations, pure), ``member`` (what is asked of one member and written
there), ``job`` (one job, from look to step), ``hub`` (all of them, and the sweeps). It imports nothing of the
two processes of a cluster, and they nothing of it.
"""
