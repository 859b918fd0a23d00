"""``tutti simulate``: a job log, replayed through the production engine in virtual time under one or more policies.

In reading order: ``job_log`` (what a log says), ``swf``, ``philly``, ``helios`` (one module a format, ``rows`` for what
the CSV ones share), ``reading`` (file to log), ``built_in`` (policies derived from the log), ``queues`` (which queue a
job waits in, and each queue by itself), ``run`` (the loop), ``measures`` (what came of it), ``report`` (how it is
shown), ``command`` (all together). Everything but ``reading`` and ``command`` is pure.
"""
