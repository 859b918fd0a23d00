"""The job kinds Tutti ships with. Semantics per kind follow Kueue's integrations; order of replica types is theirs."""

from typing import Final

from webhook.core import names
from webhook.jobs.kinds import Factor, JobKind, Layout, PodSetSource, Signal, Tally, TemplateChange
from webhook.jobs.paths import parse


def _account(namespace: str, name: str) -> str:
    return f"system:serviceaccount:{namespace}:{name}"


JOB: Final = JobKind(
    group="batch",
    version="v1",
    kind="Job",
    plural="jobs",
    pod_sets=(
        PodSetSource(
            template=parse("spec.template"),
            factors=(Factor(parse("spec.parallelism"), at_most=(parse("spec.completions"),)),),
            minimum_annotation=names.MIN_PARALLELISM,
            count=parse("spec.parallelism"),
        ),
    ),
    suspend=parse("spec.suspend"),
    deadline_seconds=parse("spec.activeDeadlineSeconds"),
    managed_by=parse("spec.managedBy"),
    manager="kubernetes.io/job-controller",
    succeeded=(Signal(condition="Complete"),),
    failed=(Signal(condition="Failed"),),
    active=(Signal(path=parse("status.active")),),
    ready=Tally((parse("status.ready"), parse("status.succeeded"), parse("status.uncountedTerminatedPods.succeeded"))),
    template_change=TemplateChange.STOPPED,
    reclaim="job",
    controller_users=frozenset({_account("kube-system", "job-controller"), "system:kube-controller-manager"}),
)

JOBSET: Final = JobKind(
    group="jobset.x-k8s.io",
    version="v1alpha2",
    kind="JobSet",
    plural="jobsets",
    pod_sets=(
        PodSetSource(
            layout=Layout.LIST,
            items=parse("spec.replicatedJobs"),
            name="name",
            template=parse("template.spec.template"),
            factors=(
                Factor(parse("replicas")),
                Factor(parse("template.spec.parallelism"), at_most=(parse("template.spec.completions"),)),
            ),
        ),
    ),
    suspend=parse("spec.suspend"),
    managed_by=parse("spec.managedBy"),
    manager="jobset.sigs.k8s.io/jobset-controller",
    succeeded=(Signal(condition="Completed"),),
    failed=(Signal(condition="Failed"),),
    active=(Signal(path=parse("status.replicatedJobsStatus.*.active")),),
    ready=Tally(
        (parse("status.replicatedJobsStatus.*.ready"), parse("status.replicatedJobsStatus.*.succeeded")),
        wanted=parse("spec.replicatedJobs.*.replicas"),
    ),
    reclaim="jobset",
    ordered_start=(
        Signal(path=parse("spec.startupPolicy.startupPolicyOrder"), values=("InOrder",)),
        Signal(path=parse("spec.replicatedJobs.*.dependsOn")),
    ),
    controller_users=frozenset({_account("jobset-system", "jobset-controller-manager")}),
    child_kinds=frozenset({"Job.batch"}),
)

_TRAINING_OPERATORS: Final = frozenset(
    {
        _account("kubeflow", "training-operator"),
        _account("kubeflow-training", "training-operator"),
        _account("training-operator", "training-operator"),
    }
)


def _kubeflow(
    kind: str,
    plural: str,
    replica_specs: str,
    order: tuple[str, ...],
    *,
    version: str = "v1",
    manager: str = "kubeflow.org/training-operator",
    users: frozenset[str] = _TRAINING_OPERATORS,
    children: frozenset[str] = frozenset(),
) -> JobKind:
    return JobKind(
        group="kubeflow.org",
        version=version,
        kind=kind,
        plural=plural,
        pod_sets=(
            PodSetSource(
                layout=Layout.MAP,
                items=("spec", replica_specs),
                order=order,
                template=("template",),
                factors=(Factor(("replicas",)),),
            ),
        ),
        suspend=parse("spec.runPolicy.suspend"),
        priority_classes=(parse("spec.runPolicy.schedulingPolicy.priorityClass"),),
        quorum=parse("spec.runPolicy.schedulingPolicy.minAvailable"),
        deadline_seconds=parse("spec.runPolicy.activeDeadlineSeconds"),
        managed_by=parse("spec.runPolicy.managedBy"),
        manager=manager,
        succeeded=(Signal(condition="Succeeded"),),
        failed=(Signal(condition="Failed"),),
        active=(Signal(path=parse("status.replicaStatuses.*.active")),),
        ready=Signal(condition="Running"),
        template_change=TemplateChange.ALWAYS,
        controller_users=users,
        child_kinds=children,
    )


PYTORCHJOB: Final = _kubeflow("PyTorchJob", "pytorchjobs", "pytorchReplicaSpecs", ("Master", "Worker"))
TFJOB: Final = _kubeflow("TFJob", "tfjobs", "tfReplicaSpecs", ("Chief", "Master", "PS", "Worker", "Evaluator"))
XGBOOSTJOB: Final = _kubeflow("XGBoostJob", "xgboostjobs", "xgbReplicaSpecs", ("Master", "Worker"))
PADDLEJOB: Final = _kubeflow("PaddleJob", "paddlejobs", "paddleReplicaSpecs", ("Master", "Worker"))
JAXJOB: Final = _kubeflow("JAXJob", "jaxjobs", "jaxReplicaSpecs", ("Worker",))
MPIJOB: Final = _kubeflow(
    "MPIJob",
    "mpijobs",
    "mpiReplicaSpecs",
    ("Launcher", "Worker"),
    version="v2beta1",
    manager="kubeflow.org/mpi-operator",
    users=_TRAINING_OPERATORS | {_account("mpi-operator", "mpi-operator")},
    children=frozenset({"Job.batch"}),
)

ENTRIES: Final[tuple[JobKind, ...]] = (JOB, JOBSET, PYTORCHJOB, TFJOB, MPIJOB, XGBOOSTJOB, PADDLEJOB, JAXJOB)
