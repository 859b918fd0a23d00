"""How rough it may be, how many seeds of each weather run in `make test`, and seeds that once found something."""

from dataclasses import replace

from tests.simulation.weather import CALM_WEATHER, Weather

PAST_FAILURES = (
    ("rough", 23),
    ("crashing", 125),
    ("crashing", 206),
    ("rough with shared pod groups", 38),
    ("rough with shared pod groups", 94),
    ("crashing with shared pod groups", 121),
    ("calm with a backup restored", 6),
    ("rough with a backup restored", 5),
    ("rough with jobs refused and kept", 7),
    ("rough with long jobs", 502932),
    ("rough with Kueue's pod groups", 500170),
    ("rough with a ledger lost", 500512),
    ("rough with jobs refused and kept", 503181),
    ("crashing with plain pods", 500141),
    ("rough with hostile tenants", 114),
    ("crashing with plain pods", 501167),
    ("rough with hostile tenants", 3276034352),
    ("rough with hostile tenants", 3276034373),
    ("crashing on few nodes", 525324903),
    ("crashing on few nodes", 3698835553),
    ("rough on few nodes", 1721633276),
    ("rough with growing groups on few nodes", 7),
    ("rough with growing groups on few nodes", 8),
    ("rough with growing groups on few nodes", 12),
    ("rough with growing groups on few nodes", 18),
    ("rough on few nodes in racks", 410000014),
    ("rough with growing groups on few nodes", 410000008),
    ("calm with nested cohorts", 3102873004),
    ("calm with nested cohorts", 3102873042),
)
"""Seeds that found a bug: a release that overtook its pods, a hold that came back after it was lifted, a check for
rest while a watch was still silent, a stop so soon after a start that pods were still on their way, a job that
joined another of its PodGroup which the same plan stopped, a pod beyond what was reserved while the watch of
pods was dead, a rebuild that forgot whose pods were ending, a standby that took over with memories of what
never happened, a start that was never tried again, two leaders that took jobs for deleted which they had not
read yet, a rebuild that gave away the room of pods that were ending, a count that forgot succeeded pods because
they were deleted, users whose groups grew beyond what their queue can ever hold, an owner that was claimed, a
wait too short to be ever over, room on nodes that a gang being stopped lost when another took over, room that
was kept on a node where others came first, groups that grew beyond what the nodes have, a second pod set whose node was
full, a started gang without nodes beside a booking, and room lent and borrowed past a cohort that had vanished."""
FEW_NODES = (3, 3, 2)
"""Less than the queues have together."""
WEATHERS = {
    "calm": (CALM_WEATHER, 5),
    "rough": (Weather(), 46),
    "rough without deadlines": (Weather(deadlines=False), 14),
    "crashing": (Weather(crash=0.05), 18),
    "calm with plain pods": (replace(CALM_WEATHER, pod_groups=5), 5),
    "rough with plain pods": (Weather(pod_groups=5), 18),
    "crashing with plain pods": (Weather(crash=0.05, pod_groups=5), 9),
    "calm with Kueue's pod groups": (replace(CALM_WEATHER, pod_groups=5, kueues=True), 5),
    "rough with Kueue's pod groups": (Weather(pod_groups=5, kueues=True), 14),
    "crashing with Kueue's pod groups": (Weather(crash=0.05, pod_groups=5, kueues=True), 9),
    "calm with shared pod groups": (replace(CALM_WEATHER, ensembles=4), 5),
    "rough with shared pod groups": (Weather(ensembles=4), 18),
    "crashing with shared pod groups": (Weather(crash=0.05, ensembles=4), 9),
    "calm with run-time limits": (replace(CALM_WEATHER, limited=0.5), 5),
    "rough with run-time limits": (Weather(limited=0.5), 18),
    "calm with long jobs": (replace(CALM_WEATHER, long=0.8), 5),
    "rough with long jobs": (Weather(long=0.8), 18),
    "calm on Kubernetes 1.34": (replace(CALM_WEATHER, release=34), 3),
    "rough on Kubernetes 1.34": (Weather(release=34), 14),
    "calm with a backup restored": (replace(CALM_WEATHER, restored=True), 5),
    "rough with a backup restored": (Weather(restored=True), 7),
    "calm with jobs refused and kept": (replace(CALM_WEATHER, refused=4, kept=0.5), 5),
    "rough with jobs refused and kept": (Weather(refused=4, kept=0.5), 7),
    "calm with jobs of CronJobs": (replace(CALM_WEATHER, scheduled=0.5), 3),
    "rough with jobs of CronJobs": (Weather(scheduled=0.5, ledger_lost=1), 5),
    "calm with new policy": (replace(CALM_WEATHER, churn=12), 5),
    "rough with new policy": (Weather(churn=12, pod_groups=3, ensembles=2), 7),
    "calm with nested cohorts": (replace(CALM_WEATHER, churn=20, nested=True), 5),
    "rough with nested cohorts": (Weather(churn=20, nested=True), 5),
    "calm with kinds that nobody can list": (replace(CALM_WEATHER, unlisted=2, pod_groups=2, ensembles=2), 5),
    "rough with kinds that nobody can list": (Weather(unlisted=2, pod_groups=2, ensembles=2), 7),
    "calm on few nodes": (replace(CALM_WEATHER, nodes=FEW_NODES), 5),
    "rough on few nodes": (Weather(nodes=FEW_NODES), 12),
    "crashing on few nodes": (Weather(crash=0.05, nodes=FEW_NODES), 9),
    "calm on few nodes in racks": (replace(CALM_WEATHER, nodes=FEW_NODES, racked=0.7), 5),
    "rough on few nodes in racks": (Weather(nodes=FEW_NODES, racked=0.7), 9),
    "crashing on few nodes in racks": (Weather(crash=0.05, nodes=FEW_NODES, racked=0.7), 5),
    "calm on nodes that come and go": (replace(CALM_WEATHER, nodes=FEW_NODES, node_churn=25), 4),
    "rough on nodes that come and go": (Weather(nodes=FEW_NODES, node_churn=25), 6),
    "crashing on nodes that come and go": (Weather(crash=0.05, nodes=FEW_NODES, node_churn=25), 4),
    "calm with adopted jobs": (replace(CALM_WEATHER, adopted=True), 5),
    "rough with adopted jobs": (Weather(adopted=True), 7),
    "calm with namespaces ungated": (replace(CALM_WEATHER, ungated=6), 5),
    "rough with namespaces ungated": (Weather(ungated=6), 7),
    "rough with hostile tenants and namespaces ungated": (Weather(hostile=60, ungated=6), 5),
    "calm with injected sidecars": (replace(CALM_WEATHER, meshed=0.5), 3),
    "rough with injected sidecars and a ledger lost": (Weather(meshed=0.5, ledger_lost=2), 5),
    "calm with credits and a ledger lost": (replace(CALM_WEATHER, in_credits=True, ledger_lost=4), 3),
    "rough with credits and a ledger lost": (Weather(in_credits=True, ledger_lost=4), 5),
    "calm with hostile tenants": (replace(CALM_WEATHER, hostile=60), 7),
    "rough with hostile tenants": (Weather(hostile=60), 9),
    "crashing with hostile tenants": (Weather(crash=0.05, hostile=60), 2),
    "rough with hostile tenants on few nodes": (Weather(hostile=60, nodes=FEW_NODES), 2),
    "rough with growing groups on few nodes": (Weather(hostile=60, pod_groups=3, ensembles=2, nodes=FEW_NODES), 4),
    "calm with names hidden": (replace(CALM_WEATHER, hidden=True, pod_groups=3, ensembles=2), 1),
    "rough with names hidden": (Weather(hidden=True, hostile=60, pod_groups=3, ensembles=2), 2),
    "calm with pages": (replace(CALM_WEATHER, page_bytes=300), 5),
    "rough with pages": (Weather(page_bytes=300), 14),
    "crashing with pages": (Weather(crash=0.05, page_bytes=300, ensembles=3), 14),
    "crashing and a few at a time": (Weather(crash=0.05, page_bytes=1_000_000, ensembles=3), 7),
    "rough with pages and a ledger lost": (Weather(ledger_lost=4, page_bytes=300), 7),
    "calm with pages put back": (replace(CALM_WEATHER, set_back=4, page_bytes=300), 3),
    "calm with releases changed": (replace(CALM_WEATHER, releases=4), 3),
    "rough with releases changed": (Weather(crash=0.0, releases=4, ensembles=2), 5),
    "calm with a ledger lost": (replace(CALM_WEATHER, ledger_lost=4), 5),
    "rough with a ledger lost": (Weather(ledger_lost=4), 7),
}
"""Name to (weather, seeds in an ordinary run): together more than 20,000 stored writes checked."""
