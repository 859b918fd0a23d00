"""The API server as bytes, records and errors: requests, list-and-watch, leader election.

``api`` is the seam, ``http`` one side of it (``connecting`` finds the server, ``statuses`` makes errors of answers,
``backoff`` says when to try again).
``informer`` drives the protocol in ``list_watch`` and keeps a ``store`` (``plain`` for objects kept whole,
``selectors`` for queries). ``election`` is the lease, ``watchdog`` ends a leader that hangs, ``client_certificate``
says who calls us, ``server_version`` what the server is.
"""
