"""What a hub asks of one member and writes there.

In reading order: ``copies`` (objects and annotations, pure), ``seen`` (what a watch shows, and whether it is news,
pure), ``answers`` (what a member answers, read within bounds), ``ledger`` (what its ledger says, pure), ``shown``
(which status of a copy the hub's job may show, pure), ``shared_read`` (one read for all who ask at once), ``health``
(whether it answers), ``member`` (one member).
"""
