"""Labels, annotations and object names that Tutti reads and writes: one place, one meaning each.

One table says who may write which of them, and where: ``jobs.reading.ours``.
"""

from typing import Final

DOMAIN: Final = "tutti.dev"

QUEUE_LABELS: Final = ("tutti.dev/queue-name", "kueue.x-k8s.io/queue-name")
"""Labels by which a job's owner asks for a queue; the first one present wins."""
DEFAULT_LOCAL_QUEUE: Final = "default"
"""The LocalQueue, as in Kueue, in which jobs of its gated namespace wait that name no queue."""

GANG_LABEL: Final = "tutti.dev/gang"
"""On pod templates and pods: ``pending…`` from the mutation on, the job's uid from the first admission on. On a plain
pod of a PodGroup: the gang's uid from the start, for it follows from the group's name."""
GANG_PENDING: Final = "pending"
GANG_PENDING_IN_NAMESPACE: Final = "pending-in-namespace"
"""The same of a job that waits by its namespace alone: nothing that its owner may take away made it wait."""
NOT_ADMITTED: Final = frozenset({GANG_PENDING, GANG_PENDING_IN_NAMESPACE})
"""Values of the gang label that name no gang."""
POD_SET_LABEL: Final = "tutti.dev/pod-set"
"""On pod templates and pods: the name of the pod set the pod belongs to."""

LEDGER_VERSION: Final = "tutti.dev/ledger-version"
"""Annotation on pod templates and pods: ``epoch.seq`` of the ledger that admitted them."""
ADMISSION: Final = "tutti.dev/admission"
"""Annotation on a started job: what it was admitted with, enough to rebuild its reservation."""
REQUEUE: Final = "tutti.dev/requeue"
"""Annotation on a job that was stopped: its place in the queue, its back-off and why it was stopped."""
TOP: Final = "tutti.dev/top"
"""When somebody who may moved a job before all others of its priority: RFC 3339."""
HOLD: Final = "tutti.dev/hold"
"""Annotation on a job that its owner suspended after admission: it waits until the owner un-suspends it."""
VOIDED: Final = "tutti.dev/voided"
"""Annotation on a waiting job whose reservation was voided: written first, so that a late start of it conflicts."""
ORIGIN_LABEL: Final = "kueue.x-k8s.io/multikueue-origin"
"""On a copy in a member of a fleet, as in MultiKueue: the uid of its hub's kube-system."""
OFFER: Final = "tutti.dev/offer"
"""Annotation on a copy: uid of the hub's job and number of the offer that it was made for. A job that bears it is
reserved for and not started until a permit is written on it."""
STOPS_NOBODY: Final = "tutti.dev/stops-nobody"
"""Annotation on a copy: it may start, but not at the cost of others, for another member may have room as it is."""
STARTS_BY: Final = "tutti.dev/starts-by"
"""Annotation on the event that says why a gang waits: the start that its queue has booked for it, where it has."""
NEVER_STARTS: Final = "tutti.dev/never-starts"
"""Annotation on the same event: ``true`` where the gang cannot start there, whatever ends."""
DISPATCH: Final = "tutti.dev/dispatch"
"""Annotation on a job of a hub: where it is placed, the record of its gang. Also the finalizer that keeps the job until
nothing is left of it in its member."""
HUB_MANAGER: Final = "kueue.x-k8s.io/multikueue"
"""``managedBy`` of jobs that a hub places, as in MultiKueue: Kubeflow's operators accept no other foreign one."""
MANAGED_BY: Final = "tutti.dev/managed-by"
"""Annotation on a job of a hub that says the same, where its kind has no ``managedBy``."""
PERMIT: Final = "tutti.dev/permit"
"""Annotation on a copy: the hub's leave to start it, good for this one object."""
GIVEN_UP: Final = "tutti.dev/given-up"
"""Annotation on a copy whose member has heard nothing of its hub for too long: its own uid. It never starts again."""
HUB_LEASE: Final = "tutti-hub-"
"""Beginning of the name of the Lease by which a hub shows a member that it is there; its kube-system's uid follows."""
HEARD: Final = "tutti.dev/heard"
"""Annotation on such a Lease: the renewal that the member has seen last, when, after how many seconds of silence it
stops what the hub has permitted, and how long a silence it has counted."""
MIRROR_ANNOTATION: Final = "kubernetes.io/config.mirror"
"""On what the API server shows of a static pod, which runs already."""

GATED_NAMESPACE: Final = "tutti.dev/gated"
"""Namespace label: every job of a known kind waits for Tutti, with or without a queue label; not where it says
``false``."""
FENCED_NAMESPACE: Final = "tutti.dev/fenced"
"""Namespace label: loose pods are checked against ResourceQuota minus reservations."""
SCHEDULING_GATE: Final = "tutti.dev/admission"
"""Scheduling gate that holds plain pods and pods of kinds without a suspend field."""

POD_GROUP_LABELS: Final = (
    "pod-group.scheduling.sigs.k8s.io",
    "scheduling.x-k8s.io/pod-group",
    "pod-group.scheduling.sigs.k8s.io/name",
)
"""Labels by which a pod template joins a PodGroup, oldest generation first."""
POD_GROUP_ANNOTATIONS: Final = ("scheduling.volcano.sh/group-name", "scheduling.k8s.io/group-name")
"""Volcano's: annotations by which a pod joins a PodGroup."""
KUEUE_POD_GROUP: Final = "kueue.x-k8s.io/pod-group-name"
"""Label, or annotation, by which a plain pod with a queue label joins a group as in Kueue; nothing on pod templates."""
KUEUE_POD_COUNT: Final = "kueue.x-k8s.io/pod-group-total-count"
"""Annotation on each of them: how many pods the group has in all."""
KUEUE_GATE: Final = "kueue.x-k8s.io/admission"
"""Kueue's own scheduling gate: it holds the pod itself."""
MIN_AVAILABLE_LABEL: Final = "pod-group.scheduling.sigs.k8s.io/min-available"

NODE_FIT: Final = "tutti.dev/node-fit"
"""Annotation of a ResourceFlavor: ``enforce``, ``observe`` or ``off``."""
AUTOSCALERS: Final = ("cluster-autoscaler.kubernetes.io/", "karpenter.sh/")
"""What the annotations and node labels of autoscalers begin with: nodes of such a flavor are made for pods."""
ADMISSION_GATES: Final = "kueue.x-k8s.io/admission-gated-by"
"""Annotation on a job (or Workload): while it names anybody, the gang is not queued."""
MIN_PARALLELISM: Final = "kueue.x-k8s.io/job-min-parallelism"
COMPLETIONS_FOLLOW: Final = "kueue.x-k8s.io/job-completions-equal-parallelism"
"""Says of an Indexed Job whose pods know each other that, started with fewer pods, it is done when these are."""
POD_SET_GROUP: Final = "kueue.x-k8s.io/podset-group-name"
HOSTNAME: Final = "kubernetes.io/hostname"
"""Label of nodes: each has its own value."""
NODE_NAME: Final = "field:metadata.name"
"""Stands for a node's own name among the labels that affinity asks about; no label is written so."""
REQUIRED_TOPOLOGY: Final = "kueue.x-k8s.io/podset-required-topology"
"""Annotation of a pod template: the node label of which all pods of the set have to meet one value."""
PREFERRED_TOPOLOGY: Final = "kueue.x-k8s.io/podset-preferred-topology"
UNCONSTRAINED_TOPOLOGY: Final = "kueue.x-k8s.io/podset-unconstrained-topology"
HYPER_NODE_TIER: Final = "topology.volcano.sh/tier-"
"""Beginning of the labels by which Volcano's HyperNodes are told apart, followed by the tier. No node bears them: they
are made up where nodes are read, so nothing that kube-scheduler reads may name them."""
SLICE_TOPOLOGY: Final = "kueue.x-k8s.io/podset-slice-required-topology"
"""The node label of which the pods of each slice have to meet one value."""
SLICE_SIZE: Final = "kueue.x-k8s.io/podset-slice-size"
SLICE_LAYERS: Final = "kueue.x-k8s.io/podset-slice-required-topology-constraints"
RANK_LABELS: Final = ("batch.kubernetes.io/job-completion-index", "training.kubeflow.org/replica-index")
"""Labels that controllers give pods which have a number in their pod set."""
JOBSET_JOB_INDEX: Final = "jobset.sigs.k8s.io/job-index"
JOBSET_REPLICAS: Final = "jobset.sigs.k8s.io/replicatedjob-replicas"
PRIORITY_CLASS_LABEL: Final = "kueue.x-k8s.io/priority-class"
DEFAULT_PRIORITY_CLASS: Final = "default"
"""The WorkloadPriorityClass, where there is one of this name, of jobs with a queue and without that label."""
MAX_EXECUTION_LABEL: Final = "kueue.x-k8s.io/max-exec-time-seconds"
PREEMPTIBLE_LABELS: Final = (
    "quota.scheduling.alibabacloud.com/preemptible",
    "quota.scheduling.koordinator.sh/preemptible",
)
"""Labels of a job by which its owner, writing ``false``, rules out that it is stopped for others."""

LEASE_ANNOTATION: Final = "control-plane.alpha.kubernetes.io/leader"
LEDGER_NAME: Final = "tutti-ledger"
LEDGER_PAGE: Final = "tutti.dev/ledger-page"
"""Label on each page of a ledger: the name of its index."""
LEDGER_PAGES: Final = f"{LEDGER_PAGE}={LEDGER_NAME}"
SYSTEM_NAMESPACE: Final = "tutti-system"
CONFIG_MAPS: Final = f"/api/v1/namespaces/{SYSTEM_NAMESPACE}/configmaps"

MAX_JOBS: Final = "tutti.dev/max-jobs"
"""Pseudo-resource of which each gang asks for 1."""
GUARANTEED: Final = "guaranteed "
"""Prefix of pseudo-resources: of ``guaranteed cpu`` a gang that may not be preempted asks what it asks of cpu."""
PREEMPTIBLE_JOBS: Final = "preemptible jobs"
"""Pseudo-resource of which each gang that may be preempted asks for 1, where the queue tells them apart."""
COUNTED: Final = frozenset({MAX_JOBS, GUARANTEED + MAX_JOBS, PREEMPTIBLE_JOBS})
"""Pseudo-resources that count gangs. They cap; nobody owns or lends them."""
MAX_JOBS_SPELLINGS: Final = ("kube-queue/max-jobs", "koord-queue/max-jobs")
