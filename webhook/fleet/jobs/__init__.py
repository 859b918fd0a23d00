"""One job of a hub, from a look to the step that follows.

In reading order: ``asking`` (which member it is offered to, and for how long), ``fleet`` (what all jobs share),
``events`` (what is told on the job, pure) and ``telling`` (which sends it; ``allowance``: not to all gangs at once),
``own`` (the hub's own job, read and written, with its record; ``last_read``: as it was read last; ``counting`` counts
what comes of it), ``cluster_names`` (by which names its cluster is reached), ``showing`` (the copy's status on it, and
how often), ``own_copy`` (what is written to the copy), ``proving`` (that nothing is left of it in a member),
``leaving`` (what keeps it there), ``granted`` and ``stopped`` (why it does not run in a member that has it),
``dependencies`` (what comes with it), ``job`` (one job, from look to step).
"""
