"""Dialects: one project's way to write quota each, compiled to the core's queues, cohorts, flavors and fences.

Pure: plain dictionaries (decoded JSON or YAML) in, core policy types and problems out. ``compiler`` is the way in, and
``registry`` says which resources there are. The dialects: ``kueue``, ``elastic_quota_tree`` and ``volcano`` (both over
``limit_tree``; ``hyper_nodes`` are Volcano's racks), ``resource_quota``; ``config_map`` has any of them without CRDs.
Each reads by ``field`` and ``selector`` and makes a ``fragment``; ``union`` joins those to one policy, ``cohort_graph``
finds cycles, and ``deleted`` keeps what is gone and still holds gangs.
"""
