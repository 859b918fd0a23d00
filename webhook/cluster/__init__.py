"""What one process knows of one cluster: kept current by watches, read by webhook, reconciler and read API alike.

``feeds`` fills ``view`` and tells its ``listener`` (``kept_objects`` keeps what jobs are read with); ``ledger_feed``
keeps its ledger, which ``ledger_book`` makes of index and pages; ``unread`` says what nobody can list, ``read_again``
which kinds a change of classes or limits concerns, ``lineage`` which job a pod belongs to, ``gathering`` when plain
pods are read as one gang. ``nodes`` knows who is on which node. ``queue_counts`` counts what queues hold; ``waiting``
and ``rebuild`` say which gangs wait and which are admitted, ``incomplete_start`` what one that has started lacks.
"""
