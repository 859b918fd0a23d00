"""One job of a hub, from a look to the step that follows.

In reading order: ``choice`` (which member is asked next, pure) and ``patience`` (how long a copy is left alone before
that; ``refusal``: a copy that was refused, ``failed``: a gang that failed there), ``fleet`` (what all jobs share),
``events`` (what is told on the job, pure) and ``telling`` (which sends it; ``allowance``: not to all gangs at once),
``proving`` (that nothing is left of it in a member; ``last_read``: what was read of it last), ``job`` (one job, from
look to step; ``counting`` counts what comes of it).
"""
