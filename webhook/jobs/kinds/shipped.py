"""The job kinds Tutti ships with. Semantics per kind follow Kueue's integrations; order of replica types is theirs."""

from typing import Final

from webhook.core.notation import names
from webhook.jobs.kinds.kind import (
    AddedContainer,
    Factor,
    JobKind,
    Layout,
    Needed,
    OpenedPort,
    PodSetSource,
    ReadyCount,
    Signal,
    TemplateChange,
)
from webhook.untyped.paths import parse


def _account(namespace: str, name: str) -> str:
    # Never in a namespace that teams work in, such as default: whoever makes pods there could take such an account.
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
    reader="job",
    suspend=parse("spec.suspend"),
    deadline_seconds=parse("spec.activeDeadlineSeconds"),
    managed_by=parse("spec.managedBy"),
    managers=("kubernetes.io/job-controller",),
    succeeded=(Signal(condition="Complete"),),
    failed=(Signal(condition="Failed"),),
    active=(Signal(path=parse("status.active")),),
    ready=ReadyCount(
        (parse("status.ready"), parse("status.succeeded"), parse("status.uncountedTerminatedPods.succeeded"))
    ),
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
    managers=("jobset.sigs.k8s.io/jobset-controller",),
    succeeded=(Signal(condition="Completed"),),
    failed=(Signal(condition="Failed"),),
    active=(Signal(path=parse("status.replicatedJobsStatus.*.active")),),
    ready=ReadyCount(
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
    name_label="jobset.sigs.k8s.io/jobset-name",
)

_TRAINING_OPERATORS: Final = frozenset(
    _account(namespace, "training-operator") for namespace in ("kubeflow", "kubeflow-training", "training-operator")
)


def _kubeflow(
    kind: str,
    plural: str,
    replica_specs: str,
    order: tuple[str, ...],
    *,
    version: str = "v1",
    other_versions: tuple[str, ...] = (),
    managers: tuple[str, ...] = ("kubeflow.org/training-operator",),
    users: frozenset[str] = _TRAINING_OPERATORS,
    children: frozenset[str] = frozenset(),
    added: tuple[AddedContainer, ...] = (),
    opens: OpenedPort | None = None,
    endless: tuple[str, ...] = (),
) -> JobKind:
    return JobKind(
        group="kubeflow.org",
        version=version,
        kind=kind,
        plural=plural,
        other_versions=other_versions,
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
        # The default, None, lets the pods of a job that failed at its deadline run on.
        deadline_if=Signal(path=parse("spec.runPolicy.cleanPodPolicy"), values=("All", "Running")),
        managed_by=parse("spec.runPolicy.managedBy"),
        managers=managers,
        succeeded=(Signal(condition="Succeeded"),),
        failed=(Signal(condition="Failed"),),
        active=(Signal(path=parse("status.replicaStatuses.*.active")),),
        # The condition Running says that one pod runs, not that all do.
        ready=ReadyCount((parse("status.replicaStatuses.*.active"), parse("status.replicaStatuses.*.succeeded"))),
        template_change=TemplateChange.ALWAYS,
        controller_users=users,
        child_kinds=children,
        name_label="training.kubeflow.org/job-name",
        added=added,
        opens=opens,
        endless=endless,
    )


PYTORCHJOB: Final = _kubeflow(
    "PyTorchJob",
    "pytorchjobs",
    "pytorchReplicaSpecs",
    ("Master", "Worker"),
    # Waits until the master's name can be looked up.
    added=(
        AddedContainer(
            {"cpu": "50m", "memory": "10Mi"},
            {"cpu": "100m", "memory": "20Mi"},
            pod_sets=("worker",),
            beside="master",
            name="init-pytorch",
        ),
    ),
    opens=OpenedPort("pytorchjob-port", 23_456),
)
TFJOB: Final = _kubeflow(
    "TFJob",
    "tfjobs",
    "tfReplicaSpecs",
    ("Chief", "Master", "PS", "Worker", "Evaluator"),
    opens=OpenedPort("tfjob-port", 2_222),
    endless=("ps",),
)
XGBOOSTJOB: Final = _kubeflow(
    "XGBoostJob", "xgboostjobs", "xgbReplicaSpecs", ("Master", "Worker"), opens=OpenedPort("xgboostjob-port", 9_999)
)
PADDLEJOB: Final = _kubeflow(
    "PaddleJob", "paddlejobs", "paddleReplicaSpecs", ("Master", "Worker"), opens=OpenedPort("master", 36_543)
)
JAXJOB: Final = _kubeflow("JAXJob", "jaxjobs", "jaxReplicaSpecs", ("Worker",), opens=OpenedPort("jaxjob-port", 6_666))
_KUBECTL_DELIVERY: Final = {"cpu": "100m", "memory": "512Mi", "ephemeral-storage": "5Gi"}
"""What the training operator has bring kubectl into its launcher; the MPI operator needs none."""
MPIJOB: Final = _kubeflow(
    "MPIJob",
    "mpijobs",
    "mpiReplicaSpecs",
    ("Launcher", "Worker"),
    version="v2beta1",
    # The training operator's own MPIJob is v1, the MPI operator's v2beta1: one name, so that a cluster serves only one.
    other_versions=("v1",),
    managers=("kubeflow.org/mpi-operator", "kubeflow.org/training-operator"),
    users=_TRAINING_OPERATORS | {_account(namespace, "mpi-operator") for namespace in ("kubeflow", "mpi-operator")},
    children=frozenset({"Job.batch"}),
    added=(
        AddedContainer(
            _KUBECTL_DELIVERY, _KUBECTL_DELIVERY, pod_sets=("launcher",), version="v1", name="kubectl-delivery"
        ),
    ),
    endless=("worker",),
)

_RAY_OPERATORS: Final = frozenset(
    {_account(namespace, "kuberay-operator") for namespace in ("kuberay-system", "ray-system")}
)


_WAIT_FOR_RAY: Final = {"cpu": "200m", "memory": "256Mi"}
_RAY_ADDED: Final = (AddedContainer(_WAIT_FOR_RAY, _WAIT_FOR_RAY, but=("head", "submitter"), name="wait-gcs-ready"),)
"""Each worker waits until the head answers."""


def _ray_groups(prefix: str) -> tuple[PodSetSource, ...]:
    return (
        PodSetSource(template=parse(f"{prefix}.headGroupSpec.template"), name="head"),
        PodSetSource(
            layout=Layout.LIST,
            items=parse(f"{prefix}.workerGroupSpecs"),
            name="groupName",
            template=("template",),
            factors=(
                # KubeRay's bounds, and its default: none.
                Factor(("replicas",), default=0, no_less=("minReplicas",), at_most=(("maxReplicas",),)),
                Factor(("numOfHosts",), at_least=1),
            ),
            optional=True,
        ),
    )


RAYCLUSTER: Final = JobKind(
    group="ray.io",
    version="v1",
    kind="RayCluster",
    plural="rayclusters",
    pod_sets=_ray_groups("spec"),
    reader="ray-cluster",
    added=_RAY_ADDED,
    suspend=parse("spec.suspend"),
    managed_by=parse("spec.managedBy"),
    managers=("ray.io/kuberay-operator",),
    active=(
        Signal(path=parse("status.state"), values=("ready",)),
        Signal(path=parse("status.availableWorkerReplicas")),
    ),
    ready=Signal(path=parse("status.state"), values=("ready",)),
    controller_users=_RAY_OPERATORS,
    child_kinds=frozenset({"Job.batch"}),
    name_label="ray.io/cluster",
)

_RAY_COMPLETE: Final = Signal(path=parse("status.jobDeploymentStatus"), values=("Complete",))

RAYJOB: Final = JobKind(
    group="ray.io",
    version="v1",
    kind="RayJob",
    plural="rayjobs",
    pod_sets=(
        *_ray_groups("spec.rayClusterSpec"),
        PodSetSource(template=parse("spec.submitterPodTemplate"), name="submitter", optional=True),
    ),
    reader="ray-job",
    added=_RAY_ADDED,
    suspend=parse("spec.suspend"),
    deadline_seconds=parse("spec.activeDeadlineSeconds"),
    managed_by=parse("spec.managedBy"),
    managers=("ray.io/kuberay-operator",),
    succeeded=(Signal(path=parse("status.jobStatus"), values=("SUCCEEDED",), only_if=_RAY_COMPLETE),),
    failed=(
        Signal(path=parse("status.jobDeploymentStatus"), values=("Failed",)),
        Signal(path=parse("status.jobStatus"), other_than=("SUCCEEDED",), only_if=_RAY_COMPLETE),
    ),
    active=(
        Signal(
            path=parse("status.jobDeploymentStatus"),
            other_than=("", "New", "Suspended", "Complete", "Failed", "ValidationFailed"),
        ),
    ),
    ready=Signal(path=parse("status.rayClusterStatus.state"), values=("ready",)),
    controller_users=_RAY_OPERATORS,
    child_kinds=frozenset({"RayCluster.ray.io", "Job.batch"}),
    # The submitter, without which its cluster waits for ever; other modes need none.
    namesake=JOB,
    name_label="ray.io/originated-from-cr-name",
    # The submitter comes when the cluster is ready.
    ordered_start=(Signal(path=parse("spec.submitterPodTemplate.spec.containers")),),
)

SPARK: Final = JobKind(
    group="sparkoperator.k8s.io",
    version="v1beta2",
    kind="SparkApplication",
    plural="sparkapplications",
    aliases=("sparkapp",),
    reader="spark",
    suspend=parse("spec.suspend"),
    deadline_seconds=None,
    succeeded=(Signal(path=parse("status.applicationState.state"), values=("COMPLETED",)),),
    # After SUBMISSION_FAILED its operator submits it again, or says FAILED.
    failed=(Signal(path=parse("status.applicationState.state"), values=("FAILED",)),),
    active=(
        Signal(
            path=parse("status.applicationState.state"),
            other_than=("", "NEW", "SUSPENDED", "COMPLETED", "FAILED", "SUBMISSION_FAILED"),
        ),
    ),
    # It is called running as soon as its driver runs.
    ready=ReadyCount(
        (parse("status.executorState.*"),),
        wanted=parse("spec.executor.instances"),
        texts=("RUNNING", "COMPLETED"),
        only_if=Signal(path=parse("status.applicationState.state"), values=("RUNNING",)),
    ),
    controller_users=frozenset(
        _account("spark-operator", name) for name in ("spark-operator-controller", "spark-operator")
    ),
    name_label="sparkoperator.k8s.io/app-name",
    # The driver makes the executors.
    pods_make_pods=True,
    ordered_start=(Signal(path=parse("spec.executor.instances")),),
)

WORKFLOW: Final = JobKind(
    group="argoproj.io",
    version="v1alpha1",
    kind="Workflow",
    plural="workflows",
    aliases=("wf",),
    reader="workflow",
    suspend=parse("spec.suspend"),
    deadline_seconds=parse("spec.activeDeadlineSeconds"),
    succeeded=(Signal(path=parse("status.phase"), values=("Succeeded",)),),
    failed=(Signal(path=parse("status.phase"), values=("Failed", "Error")),),
    active=(Signal(path=parse("status.phase"), values=("Running",)),),
    ready=Signal(path=parse("status.phase"), values=("Running",)),
    template_change=TemplateChange.NEVER,
    controller_users=frozenset({_account("argo", "argo"), _account("argo", "argo-workflows-workflow-controller")}),
    name_label="workflows.argoproj.io/workflow",
    evictable=False,
    loose_pods=True,
)

TRAINJOB: Final = JobKind(
    group="trainer.kubeflow.org",
    version="v1alpha1",
    kind="TrainJob",
    plural="trainjobs",
    reader="train-job",
    suspend=parse("spec.suspend"),
    deadline_seconds=parse("spec.activeDeadlineSeconds"),
    managed_by=parse("spec.managedBy"),
    managers=("trainer.kubeflow.org/trainjob-controller",),
    succeeded=(Signal(condition="Complete"),),
    failed=(Signal(condition="Failed"),),
    active=(Signal(path=parse("status.jobsStatus.*.active")),),
    # One child Job stands for each pod set, whether the status lists it yet or not.
    ready=ReadyCount((parse("status.jobsStatus.*.ready"), parse("status.jobsStatus.*.succeeded")), pod_sets=True),
    reclaim="train-job",
    controller_users=frozenset(
        _account(namespace, "kubeflow-trainer-controller-manager") for namespace in ("kubeflow-system", "kubeflow")
    ),
    child_kinds=frozenset({"JobSet.jobset.x-k8s.io"}),
    namesake=JOBSET,
    # The JobSet that it makes has its name.
    name_label="jobset.sigs.k8s.io/jobset-name",
    # Initializers run before the nodes.
    ordered_start=(Signal(path=parse("spec.initializer.dataset")), Signal(path=parse("spec.initializer.model"))),
    labels_need=Needed(parse("spec.runtimePatches"), "install Kubeflow Trainer 2.2 or newer"),
    prepared_start=True,
)

VOLCANO_JOB: Final = JobKind(
    group="batch.volcano.sh",
    version="v1alpha1",
    kind="Job",
    plural="jobs",
    aliases=("vcjob", "vj"),
    pod_sets=(
        PodSetSource(
            layout=Layout.LIST,
            items=parse("spec.tasks"),
            name="name",
            template=("template",),
            factors=(Factor(("replicas",)),),
            minimum=("minAvailable",),
        ),
    ),
    priority_classes=(parse("spec.priorityClassName"),),
    queue=parse("spec.queue"),
    quorum=parse("spec.minAvailable"),
    succeeded=(Signal(path=parse("status.state.phase"), values=("Completed",)),),
    failed=(Signal(path=parse("status.state.phase"), values=("Failed", "Aborted", "Terminated")),),
    active=(Signal(path=parse("status.running")), Signal(path=parse("status.pending"))),
    ready=Signal(path=parse("status.state.phase"), values=("Running",)),
    template_change=TemplateChange.NEVER,
    controller_users=frozenset({_account("volcano-system", "volcano-controllers")}),
    ordered_start=(Signal(path=parse("spec.tasks.*.dependsOn.name")),),
    name_label="volcano.sh/job-name",
    evictable=False,
    scheduling_gated=True,
)

_WRAPPABLE: Final = (
    JOB, JOBSET, PYTORCHJOB, TFJOB, MPIJOB, XGBOOSTJOB, PADDLEJOB, JAXJOB, RAYCLUSTER, RAYJOB, SPARK, TRAINJOB,
)  # fmt: skip

APPWRAPPER: Final = JobKind(
    group="workload.codeflare.dev",
    version="v1beta2",
    kind="AppWrapper",
    plural="appwrappers",
    aliases=("aw",),
    reader="app-wrapper",
    suspend=parse("spec.suspend"),
    managed_by=parse("spec.managedBy"),
    managers=("workload.codeflare.dev/appwrapper-controller",),
    succeeded=(Signal(path=parse("status.phase"), values=("Succeeded",)),),
    failed=(Signal(path=parse("status.phase"), values=("Failed",)),),
    active=(Signal(condition="QuotaReserved"), Signal(condition="ResourcesDeployed")),
    ready=Signal(condition="PodsReady"),
    controller_users=frozenset({_account("appwrapper-system", "appwrapper-controller-manager")}),
    # Deployments and StatefulSets among its components.
    pod_users=frozenset(_account("kube-system", f"{kind}-controller") for kind in ("replicaset", "statefulset")),
    pod_owners=frozenset({"ReplicaSet.apps", "StatefulSet.apps"}),
    child_kinds=frozenset(kind.key for kind in _WRAPPABLE),
    name_label="workload.codeflare.dev/appwrapper",
)

ENTRIES: Final[tuple[JobKind, ...]] = (*_WRAPPABLE, APPWRAPPER, WORKFLOW, VOLCANO_JOB)
"""All shipped kinds; where two share a name (``job``), the first is the one people mean."""
