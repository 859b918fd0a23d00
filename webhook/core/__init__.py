"""The pure core: what fits, who goes first, what is written down.

Nothing here does I/O, reads a clock, logs or draws a random number; time comes in as an argument. Read in this
order: ``quantity`` and ``amounts`` (exact numbers), ``gang`` and ``policy`` (what is asked, what is allowed),
``quota_tree`` (cohort arithmetic), ``fences`` (ResourceQuota), ``engine`` (the decision), ``ledger`` (the record),
``reasons`` (why not).
"""
