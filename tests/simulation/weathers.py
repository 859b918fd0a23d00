"""How rough it may be, how many seeds of each weather run in `make test`, and seeds that once found something."""

from dataclasses import replace

from tests.simulation.weather import CALM_WEATHER, Weather
from webhook.laboratory.simulated.faults import ROUGH

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
    ("rough on few nodes in racks", 1716558228),
    ("rough in racks and a ledger lost", 2732970012),
    ("crashing on few nodes", 726000007),
    ("crashing with plain pods", 726000006),
    ("rough with shared pod groups", 726000005),
    ("rough with growing groups on few nodes", 726000005),
    ("rough with long jobs", 7),
    ("calm with plain pods and namespaces ungated", 9100),
    ("rough with pages and a ledger lost", 1030603946),
    ("rough with pages and a ledger lost", 176473137),
    ("calm with kinds refused later", 1030603952),
    ("rough with hostile tenants of all kinds", 1030603949),
    ("rough with a backup restored", 1030603958),
    ("rough with a backup restored", 2308378525),
    ("calm with hostile tenants of all kinds", 1030603957),
    ("rough with adopted jobs", 1754824583),
    ("rough with a backup restored", 1754824602),
    ("rough with adopted jobs", 1754824607),
    ("rough with orphans of adopted jobs", 812831806),
    ("calm with names hidden", 812831778),
    ("rough with pages put back", 812831796),
    ("calm with hostile tenants of all kinds", 2129626864),
    ("crashing and a few at a time", 2129626865),
    ("calm with hostile tenants of all kinds", 1754824597),
    ("rough with orphans and namespaces ungated", 2169664985),
    ("rough with orphans and namespaces ungated", 2169665022),
    ("rough on few nodes in racks", 898174135),
    ("crashing on few nodes in racks", 1980095668),
    ("rough with pages put back", 898174125),
    ("rough with pages put back", 1),
    ("calm with nested cohorts", 4284977210),
    ("rough with releases changed", 4284977202),
    ("rough with orphans and namespaces ungated", 3262502650),
    ("rough with hostile tenants of all kinds", 1092542880),
    ("rough with plain pods and namespaces ungated", 865077854),
    ("rough with plain pods and namespaces ungated", 865077890),
    ("rough with names hidden", 865077862),
    ("rough with releases changed", 865077987),
    ("rough with orphans", 3997258178),
    ("rough with hostile tenants of all kinds", 3997258255),
    ("rough with hostile tenants and namespaces ungated", 3997258251),
    ("rough with orphans of adopted jobs", 610064873),
    ("rough with pods reviewed slowly", 2361153475),
    ("rough with pods reviewed slowly", 2835076177),
    ("calm with pods replaced", 14),
    ("rough with hostile tenants of all kinds", 1354423679),
    ("rough with orphans and namespaces ungated", 4080593428),
    ("rough with a backup restored", 2211216436),
    ("rough with orphans that name queues", 1130921),
    ("calm with orphans that name queues", 1130924),
    ("rough with orphans that name queues and namespaces ungated", 1130911),
    ("rough with two flavors and elastic jobs", 2868898085),
    ("rough with quotas made narrower and wider", 2868898086),
    ("rough with two flavors and elastic jobs", 59265807),
    ("rough with pods that start slowly + calm with two flavors in racks", 1917129546),
    ("rough with pages put back + calm with hostile tenants of all kinds", 1696498667),
    ("rough with indexes that fail on few nodes + calm with a ledger lost", 2438002115),
    ("rough with plain pods and namespaces ungated + rough with a ledger edited", 2438002570),
    ("rough with pages put back + crashing with Kueue's pod groups", 2438002652),
    ("rough with pods lent + rough with a quota tree", 2438001730),
    ("rough with long jobs + crashing with processes cut off on few nodes", 4004837193),
    ("calm with credits and a ledger lost + rough with plain pods and namespaces ungated", 1939178827),
    ("calm with adopted jobs + rough with a ledger lost", 1939178827),
    ("rough with kinds that nobody can list + rough with a bug of ours", 1939178829),
    ("rough with two flavors and elastic jobs + rough on few nodes in racks", 1939178831),
    ("calm with nested cohorts + rough with orphans that name queues", 1055053811),
    ("crashing with many shapes on nodes that come and go", 1582382056),
    ("crashing and a few at a time + rough in racks and a ledger lost", 3947401304),
    ("rough with a ledger put back + rough with priorities", 2708339206),
    ("rough with limits to lending + calm with a ledger put back", 2708339207),
    ("rough with long jobs + rough with a backup restored", 2708339212),
    ("crashing with a bug of ours + crashing on nodes that come and go", 2902801153),
    ("rough with hostile tenants on few nodes + calm with orphans", 2902801165),
    ("crashing and a few at a time + calm with jobs refused and kept", 2902801162),
    ("calm with a ledger edited + calm with hostile tenants of all kinds", 3340023216),
    ("calm with a ledger put back + rough with pods lent", 3340023214),
    ("rough with orphans that name queues + rough with pods lent", 3340023217),
    ("rough with pages and a ledger lost + crashing with many shapes on nodes that come and go", 3047290645),
    ("calm with hostile tenants + crashing with processes cut off on few nodes", 3047290668),
    ("calm with run-time limits + rough with indexes that fail on few nodes", 3047290649),
    ("calm with pages put back + rough with run-time limits", 3047290653),
    ("calm with hostile tenants of all kinds + calm with names hidden", 3047290653),
    ("calm on few nodes in racks + rough with pods that stop slowly and a backup restored", 3047290670),
    ("rough with kinds refused later + calm with pages put back", 3047290668),
    ("rough with a ledger put back + crashing with fair shares and pods that stop slowly", 3047290667),
    ("rough with orphans and namespaces ungated + rough with quotas made narrower and wider", 3047290649),
    ("rough on nodes that come and go + crashing with Kueue's pod groups", 4009514628),
    ("calm with run-time limits + rough with orphans", 4009514629),
)
"""Seeds that found a bug: a release that overtook its pods, a hold that came back after it was lifted, a check for
rest while a watch was still silent, a stop so soon after a start that pods were still on their way, a job that joined
another of its PodGroup which the same plan stopped, a pod beyond what was reserved while the watch of pods was dead,
a rebuild that forgot whose pods were ending, a standby that took over with memories of what never happened, a start
that was never tried again, two leaders that took jobs for deleted which they had not read yet, a rebuild that gave
away the room of pods that were ending, a count that forgot succeeded pods because they were deleted, users whose
groups grew beyond what their queue can ever hold, an owner that was claimed, a wait too short to be ever over, room
on nodes that a gang being stopped lost when another took over, room that was kept on a node where others came first,
groups that grew beyond what the nodes have, a second pod set whose node was full, a started gang without nodes beside
a booking, room lent and borrowed past a cohort that had vanished, a check that knew no pod whose rack others had
filled, and none whose rack is kept by who is being stopped,
two pod sets of a gang that were kept the same room, a claim that awaited who was turned back, a growth that
forgot who had succeeded, a claim that counted on who ends for a booking alone, a release that overtook the pods of a
late start, an owner who was still holding a job when all were let go, what a leader wrote on a page before it noticed
that the index was gone, a kind that was answered for a moment between two refusals, a pod that its owner gave to
another's Job, a restored backup that only a restart shows, a start that was on its way to the API server before it
was stopped for one, room that was kept until another claim ended, old
jobs that were deleted from above their pods before anybody had adopted them,
a standby that took what was restored for an old copy of the ledger alone, a
resumed job whose last old pod was seen to go after its room was released, a
pod that was taken out of its gang while it was being deleted, an owner whose
hold was written down after he had given up lifting it, pods of an orphaned Job that were forgotten before a watch
that was five seconds behind had shown them, a gang being stopped that
lost its place in a rack to one that may go anywhere, an old page that counted
as judged because a leader that had not noticed it went on writing elsewhere,
pods of a job that was deleted while a rebuild wrote others, a check that had
not seen to which cohort a queue was moved before it was deleted, users who left
orphans where nobody was to leave any, jobs that were adopted while their queues
were gone, pods whose deletion conflicted as fast as it was asked for while a
watch said nothing, a late start after a write that was to void it and said only
what was stored already, a note that a tenant had copied, a ledger that was
taken away before there was one, a job that was gone, and one whose status its
tenant wrote, a moment after their start, an owner in another namespace, an old job
that was deleted half a second before the first ledger, a JobSet that was
stopped while the pods that it lacked were being reviewed, a PyTorchJob that
was deleted while a pod of it was replaced and the ledger written, Jobs that
overdrew the queue that they named by losing the JobSet that was in none, pods
of an old Job that were orphaned a second before who read them saw it go, an
owner who gave up lifting a hold while a restore kept it from the leader,
orphans that were adopted beside the gang which still held their room, a check
that took the pods which a Job gets back as it is stopped for running, one
that asked of ended pods where their gang runs by now, and others that asked for the flavor of a gang without a queue,
and for the room of a JobSet that was deleted and had no pods left, a node that came back and was given to others than
the pods that waited for one, an owner who held a job while nobody led and the ledger was edited, a page of a ledger
that had come as far as the one after it, room that a Job gave back while pods were in it that none had read yet,
a gang that was asked whether it books nodes in every cycle, after another had used up the searches, owners who held a
job just before the ledger was lost, a process that was ended twice at once and so started twice, an owner who
scaled a Job to fewer pods than a slice of it has, a cohort that was split while a queue had borrowed there, room
on a node that was taken from a gang and kept for it again, each time told as free, a pod that landed where one
was to go of a rack, which took the place of a gang being stopped, an old copy of a ledger of a gang that has more
pods by now, a backup of a moment at which an owner held a job and nobody had written that down, a pod of several
GPUs that landed where a gang being stopped had one, a pod that named its owner twice, room
that was kept for a job which started with others, a pod set without pods that an owner added to an adopted job, an old
copy of the ledger beside a gang that had been stopped since and whose pods were still ending, a pod of an adopted
job that was replaced while it ended, heads that each used up the other's searches for nodes in every cycle, a job that
failed before its limit and one whose leader had gone, a plain pod that was replaced while it ended, a rack that a
backup brought back, gangs that an old copy of the ledger had of a kind refused since, a Job between two of its pods
beside an old copy, a head for which plain pods that waited behind it left no room, and pods that had succeeded on a
node that was taken away."""
FEW_NODES = (3, 3, 2)
"""Less than the queues have together."""
TWO_RACKS = (3, 3, 2, 1)
"""Of two flavors each has a node in each."""
SLOW = replace(ROUGH, request_delay_seconds=0.7)
"""Writes of pages outlast what is left until the lease is renewed: then that is a write of its own."""
WEATHERS = {
    "calm": (CALM_WEATHER, 5),
    "rough": (Weather(), 16),
    "rough without deadlines": (Weather(deadlines=False), 5),
    "crashing": (Weather(crash=0.05), 7),
    "calm with plain pods": (replace(CALM_WEATHER, pod_groups=5), 3),
    "rough with plain pods": (Weather(pod_groups=5), 6),
    "crashing with deaths told": (Weather(crash=0.05, deaths_told=0.8), 3),
    "calm with deaths imagined": (replace(CALM_WEATHER, deaths_imagined=0.7), 2),
    "rough with deaths imagined": (Weather(deaths_told=0.8, deaths_imagined=0.5, ensembles=2), 4),
    "rough with deaths imagined and pages": (Weather(deaths_told=0.5, deaths_imagined=0.7, page_bytes=300), 4),
    "crashing with deaths imagined and pod groups": (
        Weather(crash=0.05, deaths_told=0.8, deaths_imagined=0.5, pod_groups=5, page_bytes=300),
        3,
    ),
    "crashing with plain pods": (Weather(crash=0.05, pod_groups=5), 5),
    "calm with Kueue's pod groups": (replace(CALM_WEATHER, pod_groups=5, kueues=True), 3),
    "rough with Kueue's pod groups": (Weather(pod_groups=5, kueues=True), 5),
    "crashing with Kueue's pod groups": (Weather(crash=0.05, pod_groups=5, kueues=True), 5),
    "calm with shared pod groups": (replace(CALM_WEATHER, ensembles=4), 3),
    "rough with shared pod groups": (Weather(ensembles=4), 6),
    "crashing with shared pod groups": (Weather(crash=0.05, ensembles=4), 5),
    "calm with run-time limits": (replace(CALM_WEATHER, limited=0.5), 3),
    "rough with run-time limits": (Weather(limited=0.5), 6),
    "calm with run-time limits and clocks apart": (replace(CALM_WEATHER, limited=0.5, clocks_apart_seconds=3600), 2),
    "rough with run-time limits and clocks apart": (Weather(limited=0.5, clocks_apart_seconds=3600), 3),
    "calm with long jobs": (replace(CALM_WEATHER, long=0.8), 3),
    "rough with long jobs": (Weather(long=0.8), 6),
    "calm on Kubernetes 1.34": (replace(CALM_WEATHER, release=34, all_served=True), 2),
    "rough on Kubernetes 1.34": (Weather(release=34, all_served=True), 5),
    "calm with a backup restored": (replace(CALM_WEATHER, restored=True), 3),
    "rough with a backup restored": (Weather(restored=True), 4),
    "calm with jobs refused and kept": (replace(CALM_WEATHER, refused=4, kept=0.5), 3),
    "rough with jobs refused and kept": (Weather(refused=4, kept=0.5), 4),
    "calm with pods reviewed slowly": (replace(CALM_WEATHER, slow_on_pods_seconds=2.5), 2),
    "rough with pods reviewed slowly": (Weather(slow_on_pods_seconds=2.5, long=0.5), 3),
    "calm with pods replaced": (replace(CALM_WEATHER, slow_on_pods_seconds=2.5, replaced=5), 3),
    "calm with jobs of CronJobs": (replace(CALM_WEATHER, scheduled=0.5), 2),
    "rough with jobs of CronJobs": (Weather(scheduled=0.5, ledger_lost=1), 3),
    "calm with new policy": (replace(CALM_WEATHER, churn=12), 3),
    "rough with new policy": (Weather(churn=12, pod_groups=3, ensembles=2), 4),
    "calm with nested cohorts": (replace(CALM_WEATHER, churn=20, nested=True), 3),
    "rough with nested cohorts": (Weather(churn=20, nested=True), 3),
    "calm with kinds that nobody can list": (replace(CALM_WEATHER, unlisted=2, pod_groups=2, ensembles=2), 3),
    "rough with kinds that nobody can list": (Weather(unlisted=2, pod_groups=2, ensembles=2), 4),
    "calm with kinds refused later": (replace(CALM_WEATHER, shut=6), 2),
    "rough with kinds refused later": (Weather(shut=6, shut_until_rest=True), 3),
    "calm on few nodes": (replace(CALM_WEATHER, nodes=FEW_NODES), 3),
    "rough on few nodes": (Weather(nodes=FEW_NODES), 5),
    "crashing on few nodes": (Weather(crash=0.05, nodes=FEW_NODES), 5),
    "calm on few nodes in racks": (replace(CALM_WEATHER, nodes=FEW_NODES, racked=0.7), 3),
    "rough on few nodes in racks": (Weather(nodes=FEW_NODES, racked=0.7), 5),
    "rough in racks and a ledger lost": (Weather(nodes=FEW_NODES, racked=0.7, ledger_lost=3), 2),
    "crashing on few nodes in racks": (Weather(crash=0.05, nodes=FEW_NODES, racked=0.7), 3),
    "calm on nodes that come and go": (replace(CALM_WEATHER, nodes=FEW_NODES, node_churn=25), 2),
    "rough on nodes that come and go": (Weather(nodes=FEW_NODES, node_churn=25), 3),
    "crashing on nodes that come and go": (Weather(crash=0.05, nodes=FEW_NODES, node_churn=25), 2),
    "calm with many shapes": (replace(CALM_WEATHER, nodes=FEW_NODES, many_shapes=True), 2),
    "rough with many shapes": (Weather(nodes=FEW_NODES, many_shapes=True, churn=8), 3),
    "crashing with many shapes on nodes that come and go": (
        Weather(crash=0.05, nodes=FEW_NODES, node_churn=15, many_shapes=True, ensembles=2),
        3,
    ),
    "calm with indexes that fail": (replace(CALM_WEATHER, failing=0.8, long=0.5), 2),
    "rough with indexes that fail": (Weather(failing=0.8, long=0.5), 3),
    "rough with indexes that fail and pods that stop slowly": (Weather(failing=0.9, stop_seconds=25), 3),
    "rough with indexes that fail on few nodes": (Weather(failing=0.8, long=0.3, nodes=FEW_NODES, node_churn=10), 2),
    "calm with processes cut off": (replace(CALM_WEATHER, cut_off=8), 2),
    "rough with processes cut off": (Weather(cut_off=8, elastic=0.5, pod_groups=2), 3),
    "rough with processes cut off and hostile tenants": (Weather(cut_off=8, hostile=100, hostile_kinds=True), 2),
    "crashing with processes cut off on few nodes": (
        Weather(crash=0.05, cut_off=8, nodes=FEW_NODES, two_flavors=True, page_bytes=300),
        2,
    ),
    "calm with priorities": (replace(CALM_WEATHER, priorities=True), 2),
    "rough with priorities": (Weather(priorities=True, pod_groups=2, ensembles=1), 3),
    "crashing with priorities on few nodes": (Weather(crash=0.05, priorities=True, nodes=FEW_NODES), 3),
    "calm with a quota tree": (replace(CALM_WEATHER, quota_tree=True), 2),
    "rough with a quota tree": (Weather(quota_tree=True, stop_seconds=5), 4),
    "crashing with a quota tree on few nodes": (Weather(crash=0.05, quota_tree=True, nodes=FEW_NODES), 3),
    "rough with a quota tree and a ledger lost": (Weather(quota_tree=True, ledger_lost=4, page_bytes=300), 3),
    "calm with quotas made narrower and wider": (replace(CALM_WEATHER, fences=12), 2),
    "rough with quotas made narrower and wider": (Weather(fences=12, pod_groups=2, ensembles=2, elastic=0.3), 3),
    "crashing with quotas made narrower and wider": (Weather(crash=0.05, fences=12, stop_seconds=10), 3),
    "calm with limits to lending": (replace(CALM_WEATHER, limits=True, priorities=True), 2),
    "rough with limits to lending": (Weather(limits=True, priorities=True, pod_groups=2, ensembles=1), 3),
    "rough with limits to lending and elastic jobs": (Weather(limits=True, elastic=0.8, long=0.3, stop_seconds=10), 2),
    "crashing with limits to lending on few nodes": (Weather(crash=0.05, limits=True, nodes=FEW_NODES), 2),
    "calm with fair shares": (replace(CALM_WEATHER, limits=True, fair=True, priorities=True), 2),
    "rough with fair shares": (Weather(limits=True, fair=True, priorities=True, pod_groups=2), 3),
    "crashing with fair shares and pods that stop slowly": (
        Weather(crash=0.05, limits=True, fair=True, stop_seconds=20, elastic=0.3),
        2,
    ),
    "rough with fair shares and a ledger lost": (Weather(limits=True, fair=True, ledger_lost=4, page_bytes=300), 2),
    "calm with two flavors": (replace(CALM_WEATHER, two_flavors=True), 2),
    "rough with two flavors": (Weather(two_flavors=True, priorities=True, long=0.3), 4),
    "crashing with two flavors on few nodes": (
        Weather(crash=0.05, two_flavors=True, priorities=True, nodes=FEW_NODES, stop_seconds=10),
        4,
    ),
    "rough with two flavors and a ledger lost": (Weather(two_flavors=True, ledger_lost=4, page_bytes=300), 3),
    "rough with two flavors and elastic jobs": (Weather(two_flavors=True, elastic=0.8, priorities=True), 3),
    "calm with two flavors in racks": (replace(CALM_WEATHER, two_flavors=True, racked=0.5, nodes=TWO_RACKS), 2),
    "rough with two flavors in racks": (
        Weather(two_flavors=True, racked=0.5, nodes=TWO_RACKS, priorities=True),
        3,
    ),
    "crashing with two flavors in racks and pods that stop slowly": (
        Weather(crash=0.05, two_flavors=True, racked=0.7, nodes=TWO_RACKS, stop_seconds=20, elastic=0.3),
        2,
    ),
    "calm with elastic jobs": (replace(CALM_WEATHER, elastic=0.9), 2),
    "rough with elastic jobs": (Weather(elastic=0.9, long=0.3), 3),
    "crashing with elastic jobs that stop slowly on few nodes": (
        Weather(crash=0.05, elastic=0.9, stop_seconds=20, nodes=FEW_NODES),
        3,
    ),
    "rough with elastic jobs and a ledger lost": (Weather(elastic=0.9, ledger_lost=4, page_bytes=300), 2),
    "calm with pods lent": (replace(CALM_WEATHER, lent=30, long=0.5, stop_seconds=25), 2),
    "rough with pods lent": (Weather(lent=30, long=0.5, failing=0.3, stop_seconds=25), 3),
    "calm with pods that start slowly": (replace(CALM_WEATHER, start_seconds=40), 2),
    "rough with pods that start slowly": (Weather(start_seconds=40, pod_groups=2, ensembles=1), 3),
    "crashing with pods that start and stop slowly": (
        Weather(crash=0.05, start_seconds=40, stop_seconds=20, two_flavors=True, elastic=0.3),
        3,
    ),
    "calm with work queues": (replace(CALM_WEATHER, work_queues=0.8, lent=10), 2),
    "rough with work queues": (Weather(work_queues=0.8, stop_seconds=10, priorities=True, long=0.3), 3),
    "calm with pods that stop slowly": (replace(CALM_WEATHER, stop_seconds=28, long=0.3), 2),
    "rough with pods that stop slowly": (Weather(stop_seconds=28, pod_groups=2), 3),
    "crashing with pods that stop slowly on few nodes": (Weather(crash=0.05, stop_seconds=28, nodes=FEW_NODES), 3),
    "rough with pods that stop slowly and orphans": (Weather(stop_seconds=28, orphaned=6, ensembles=1), 2),
    "rough with pods that stop slowly and a ledger lost": (Weather(stop_seconds=28, ledger_lost=4, page_bytes=300), 2),
    "rough with pods that stop slowly and a backup restored": (Weather(stop_seconds=28, restored=True), 2),
    "rough with pods that stop slowly and hostile tenants": (
        Weather(stop_seconds=28, hostile=200, hostile_kinds=True),
        2,
    ),
    "rough with pods that stop slowly and adopted jobs": (
        Weather(stop_seconds=28, adopted=True, ungated=4, orphaned=4, children_ask=0.5),
        2,
    ),
    "calm with adopted jobs": (replace(CALM_WEATHER, adopted=True), 3),
    "rough with adopted jobs": (Weather(adopted=True), 4),
    "calm with orphans": (replace(CALM_WEATHER, orphaned=6), 2),
    "rough with orphans": (Weather(orphaned=6), 3),
    "calm with orphans of adopted jobs": (replace(CALM_WEATHER, adopted=True, orphaned=6), 2),
    "rough with orphans of adopted jobs": (Weather(adopted=True, orphaned=6), 3),
    "calm with orphans that name queues": (replace(CALM_WEATHER, adopted=True, orphaned=6, children_ask=0.7), 2),
    "rough with orphans that name queues": (Weather(adopted=True, orphaned=6, children_ask=0.7), 3),
    "rough with orphans that name queues and namespaces ungated": (
        Weather(adopted=True, ungated=6, orphaned=6, children_ask=0.5),
        2,
    ),
    "calm with orphans and namespaces ungated": (replace(CALM_WEATHER, adopted=True, ungated=6, orphaned=6), 2),
    "rough with orphans and namespaces ungated": (Weather(adopted=True, ungated=6, orphaned=6), 3),
    "calm with namespaces ungated": (replace(CALM_WEATHER, ungated=6), 3),
    "rough with namespaces ungated": (Weather(ungated=6), 4),
    "calm with plain pods and namespaces ungated": (replace(CALM_WEATHER, ungated=10, pod_groups=5), 2),
    "rough with plain pods and namespaces ungated": (Weather(ungated=10, pod_groups=5, ensembles=2), 3),
    "rough with hostile tenants and namespaces ungated": (Weather(hostile=60, ungated=6), 3),
    "calm with injected sidecars": (replace(CALM_WEATHER, meshed=0.5), 2),
    "rough with injected sidecars and a ledger lost": (Weather(meshed=0.5, ledger_lost=2), 3),
    "calm with credits and a ledger lost": (replace(CALM_WEATHER, in_credits=True, ledger_lost=4), 2),
    "rough with credits and a ledger lost": (Weather(in_credits=True, ledger_lost=4), 3),
    "calm with hostile tenants": (replace(CALM_WEATHER, hostile=60), 4),
    "rough with hostile tenants": (Weather(hostile=60), 5),
    "crashing with hostile tenants": (Weather(crash=0.05, hostile=60), 2),
    "rough with hostile tenants on few nodes": (Weather(hostile=60, nodes=FEW_NODES), 2),
    "calm with hostile tenants of all kinds": (replace(CALM_WEATHER, hostile=800, hostile_kinds=True), 2),
    "rough with hostile tenants of all kinds": (Weather(hostile=800, hostile_kinds=True), 2),
    "rough with growing groups on few nodes": (Weather(hostile=60, pod_groups=3, ensembles=2, nodes=FEW_NODES), 2),
    "calm with names hidden": (replace(CALM_WEATHER, hidden=True, pod_groups=3, ensembles=2), 1),
    "rough with names hidden": (Weather(hidden=True, hostile=60, pod_groups=3, ensembles=2), 2),
    "calm with pages": (replace(CALM_WEATHER, page_bytes=300), 3),
    "rough with pages": (Weather(page_bytes=300), 5),
    "crashing with pages": (Weather(crash=0.05, page_bytes=300, ensembles=3), 5),
    "crashing and a few at a time": (Weather(crash=0.05, page_bytes=1_000_000, ensembles=3), 4),
    "rough with pages and a ledger lost": (Weather(ledger_lost=4, page_bytes=300), 4),
    "calm with pages put back": (replace(CALM_WEATHER, set_back=4, nobody_leads=0.5, page_bytes=300), 3),
    "rough with pages put back": (Weather(set_back=4, nobody_leads=0.5, page_bytes=300), 4),
    "crashing with pages put back": (Weather(crash=0.05, set_back=4, nobody_leads=0.5, page_bytes=300), 3),
    "calm with a ledger put back": (replace(CALM_WEATHER, set_back=4, nobody_leads=0.5), 2),
    "rough with a ledger put back": (Weather(set_back=4, nobody_leads=0.5), 3),
    "calm with releases changed": (replace(CALM_WEATHER, releases=4), 2),
    "rough with releases changed": (Weather(crash=0.0, releases=4, ensembles=2), 3),
    "calm with a bug of ours": (replace(CALM_WEATHER, bugs=0.2, pod_groups=5), 3),
    "rough with a bug of ours": (Weather(bugs=0.2, pod_groups=5, ensembles=3), 4),
    "crashing with a bug of ours": (Weather(crash=0.05, bugs=0.2, pod_groups=5, page_bytes=300), 3),
    "calm with a ledger lost": (replace(CALM_WEATHER, ledger_lost=4), 3),
    "rough with a ledger lost": (Weather(ledger_lost=4), 4),
    "calm with a ledger edited": (replace(CALM_WEATHER, edited=8), 2),
    "rough with a ledger edited": (Weather(edited=8), 3),
    "crashing with a ledger edited and pages": (Weather(crash=0.05, edited=8, page_bytes=300), 3),
    "slow with a ledger edited and pages": (Weather(SLOW, edited=8, page_bytes=300), 4),
}
"""Name to (weather, seeds in an ordinary run): together more than 20,000 stored writes checked."""
