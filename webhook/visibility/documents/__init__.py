"""The documents of the read API: a Workload for every gang, a Queue for every queue, kept in a watch cache.

``workload`` (with ``conditions`` and ``milestones``) and ``queue`` have the shapes, ``workload_writer`` and
``queue_writer`` write what changed into ``watch_cache``; ``reporter`` has them do it when somebody asks.
"""
