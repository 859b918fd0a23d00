"""The pure core: what fits, who goes first, what is written down.

Nothing here does I/O, reads a clock, logs or draws a random number; time comes in as an argument. The packages, each of
which may import those before it: ``notation`` (names, amounts, moments, and how they are written), ``reasons`` (why a
gang waits or stops), ``model`` (gang, policy, pods), ``ledger`` (the record), ``quota`` (cohort arithmetic and
ResourceQuota) beside ``nodes`` (what is free there), ``placement`` (what fits which nodes), ``assignment`` (one gang's
flavors, victims and shares), ``pending`` (where gangs wait), ``backfill`` (who may pass a blocked head), ``scheduler``
(the engine), ``pod_group`` (jobs that share one PodGroup, taken as one gang). ``fleet`` is independent of them: the
protocol between a hub and its members.
"""
