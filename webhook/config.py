"""Every knob, with unit, bound and default. Read from one YAML file; unknown keys are refused by name."""

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_args

from pydantic import BaseModel, Field, ValidationError, model_validator

from webhook.core.model.policy import NodeFit
from webhook.core.model.settings import EngineSettings, Transformation, UsageDecay
from webhook.core.notation import names
from webhook.core.notation.problem import Problem
from webhook.errors import WrongInput, in_words
from webhook.jobs.kinds.kind import JobKind
from webhook.jobs.kinds.registry import of_hub, with_custom
from webhook.jobs.pricing.context import NetworkTier
from webhook.jobs.pricing.injections import AddedContainer
from webhook.kueue_settings import (
    LONGEST_SECONDS,
    AdmissionFairSharing,
    FairSharing,
    Resources,
    WaitForPodsReady,
)
from webhook.untyped import yaml_text
from webhook.untyped.operator_files import Section, said

Seconds = Annotated[float, Field(gt=0, le=86_400)]
Patience = Annotated[float, Field(gt=0, le=LONGEST_SECONDS)]
BackOff = Annotated[float, Field(ge=0, le=LONGEST_SECONDS)]
Port = Annotated[int, Field(ge=0, le=65_535)]


class Lease(Section):
    """Leader election on the ledger ConfigMap; lease > renew > retry."""

    lease_seconds: Seconds = 5
    renew_seconds: Seconds = 4
    """A leader that has not renewed for this long steps down."""
    retry_seconds: Seconds = 1

    @model_validator(mode="after")
    def _in_order(self) -> "Lease":
        if not self.lease_seconds > self.renew_seconds > self.retry_seconds:
            raise ValueError("lease_seconds must be more than renew_seconds, and renew_seconds more than retry_seconds")
        return self


class Start(Section):
    """What happens to a gang that was admitted and does not reach its quorum."""

    timeout_seconds: Patience = 300
    recovery_seconds: Patience | None = 300
    """The same, once the gang has been whole and lost pods; None: it may lack them for ever."""
    backoff_seconds: BackOff = 60
    """First wait before it is considered again; doubles with each attempt."""
    backoff_max_seconds: BackOff = 3600
    attempts: Annotated[int, Field(ge=0)] | None = None
    """So often in a row it is queued again; then it is held until its owner lifts that. None: for ever."""
    place: Literal["Eviction", "Creation"] = "Eviction"
    """By which time it is ordered then: it goes to the back, or keeps its place."""


class Listen(Section):
    """Where the process serves. Port 0 picks a free one."""

    host: str = "0.0.0.0"  # noqa: S104 - a pod serves the cluster; NetworkPolicy narrows it
    webhook_port: Port = 9443
    visibility_port: Port = 9444
    health_port: Port = 8080


class Reviewers(Section):
    """Who may ask the webhook: callers with a client certificate, which an API server can be configured to show."""

    authority: Path
    """PEM file of the authority that signs these certificates."""
    names: tuple[str, ...] = ()
    """Common names that are believed; empty: every name that the authority has signed."""


class Config(Section):
    """The whole configuration of either process."""

    kubeconfig: Path | None = None
    """None: in-cluster service account."""
    identity: str = ""
    """Name of this replica; the host name by default (a pod's name)."""
    cert_dir: Path = Path("/certs")
    listen: Listen = Listen()
    reviewers: Reviewers | None = None
    """None: whoever reaches the port is answered."""
    peers: dict[str, str] = Field(default_factory=dict)
    """Webhook replicas, name to base URL, this one included; empty: read from the EndpointSlices of peer_service."""
    peer_service: str = "tutti-webhook"
    lease: Lease = Lease()
    start: Start = Start()
    wait_for_pods_ready: WaitForPodsReady | None = Field(default=None, alias="waitForPodsReady")
    """Instead of ``start``."""
    commit_window_seconds: Annotated[float, Field(ge=0, le=5)] = 0.02
    """Decisions of this long are one ledger write; widens with the ledger's size."""
    ledger_bytes_per_second: Annotated[int, Field(ge=65_536)] = 2_000_000
    """Budget for ledger writes: size times rate, since etcd keeps every revision until it compacts."""
    effects_in_flight: Annotated[int, Field(ge=1, le=512)] = 16
    """Writes to jobs at a time. More are no faster where the API server has no time left, and hold up the ledger's."""
    events_per_second: Annotated[float, Field(ge=0, le=1000)] = 20
    status_seconds: Seconds = 5
    """At most one status write per policy object in this time."""
    audit_seconds: Seconds = 300
    """Everything is listed again at about this interval, and what takes long to list more rarely."""
    missing_kind_retry_seconds: Seconds = 10
    kinds: tuple[dict[str, Any], ...] = ()
    """Job kinds of the operator's own custom resources, as in docs/job-kinds.md."""
    added_containers: tuple[AddedContainer, ...] = Field(default=(), alias="addedContainers")
    """What injectors add to pods of any kind when these are created."""
    fair_sharing: FairSharing | None = Field(default=None, alias="fairSharing")
    """None: classical preemption and order."""
    resources: Resources = Resources()
    admission_fair_sharing: AdmissionFairSharing | None = Field(default=None, alias="admissionFairSharing")
    """None: queues that ask for it order by priority and time alone."""
    compute_classes: Path | None = None
    """Catalog of compute classes; None: the shipped one."""
    exempt_namespaces: tuple[str, ...] = ("kube-system", "kube-public", "kube-node-lease")
    node_fit: NodeFit = Field(default=NodeFit.ENFORCE, alias="nodeFit")
    """For flavors without the annotation that says it, and for gangs without a queue."""
    network_tiers: tuple[NetworkTier, ...] = Field(default=(), alias="networkTiers")
    """What ``networkTopology`` of Volcano's jobs means by its tiers."""
    hide_neighbours: bool = False
    """Reasons, events and refusals name no jobs of other namespaces."""
    hub: bool = False
    """The cluster is the hub of a fleet: its jobs wait here for quota, and run in a member."""
    fleet_members: Path | None = None
    """Directory of kubeconfigs, one a member, named as the member: what ``tutti hub`` places jobs in."""
    fleet_dead_man: bool = False
    """``tutti hub`` renews a Lease in each member, and places elsewhere what a silent member has surely stopped."""
    silent_hub_seconds: Annotated[float, Field(ge=15, le=86_400)] | None = None
    """A member stops what a hub has permitted that has not renewed its Lease for this long; None: never."""
    left_to_kueue: bool = False
    """Kueue itself serves the cluster: objects with its queue label are passed through."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    @model_validator(mode="after")
    def _said_once(self) -> "Config":
        if {"start", "wait_for_pods_ready"} <= self.model_fields_set:
            raise ValueError("start and waitForPodsReady say the same; write one of them")
        return self

    @property
    def starting(self) -> Start:
        """What happens to gangs that do not reach their quorum, however it is written."""
        wait = self.wait_for_pods_ready
        return self.start if wait is None else _start_of(wait)

    @property
    def starting_in_kueue(self) -> Start:
        """The same for a Workload of Kueue's, which waits as Kueue does by default where nothing is written."""
        return self.starting if "start" in self.model_fields_set else _start_of(self.wait_for_pods_ready)


def _start_of(written: WaitForPodsReady | None) -> Start:
    wait = written or WaitForPodsReady()
    rules = wait.requeuing_strategy
    return Start(
        timeout_seconds=wait.timeout,
        recovery_seconds=wait.timeout if wait.recovery_timeout is None else wait.recovery_timeout or None,
        backoff_seconds=rules.backoff_base_seconds,
        backoff_max_seconds=rules.backoff_max_seconds,
        attempts=rules.backoff_limit_count,
        place=rules.timestamp,
    )


_KUEUE_ALONE: Final = {
    "apiVersion": "remove it; Tutti's own file holds settings only",
    "kind": "remove it; Tutti's own file holds settings only",
    "manageJobsWithoutQueueName": f"label the namespaces whose jobs must wait: {names.GATED_NAMESPACE}=true",
    "managedJobsNamespaceSelector": "name the namespaces to leave alone in exempt_namespaces",
    "integrations": "remove it: every job kind is on; describe your own in kinds",
    "featureGates": "remove it: Tutti decides as Kueue does with its default gates",
    "multiKueue": "remove it: tutti hub takes its members from fleet_members and MultiKueueClusters",
    "objectRetentionPolicies": "remove it: Tutti stores no Workload and deletes no job",
    "fairSharing.enable": "remove it: fair sharing is on when preemptionStrategies are given",
    "waitForPodsReady.enable": "remove it: gangs that lack pods for too long are always stopped; set timeout",
    "waitForPodsReady.blockAdmission": "remove it, or write false: Tutti decides beforehand whether all pods can run",
    "resources.deviceClassMappings": "remove it: devices claimed from device classes are not charged",
}
"""What changes Kueue's decisions, or is in each of its files, and what to do here instead."""


def engine_settings(config: Config) -> EngineSettings:
    """Return what of ``config`` decides."""
    resources, sharing = config.resources, config.admission_fair_sharing
    return EngineSettings(
        fair_sharing=() if config.fair_sharing is None else config.fair_sharing.preemption_strategies,
        excluded_prefixes=resources.exclude_resource_prefixes,
        transformations=tuple(
            Transformation(rule.input, rule.outputs, rule.strategy == "Replace", rule.multiply_by)
            for rule in resources.transformations
        ),
        ignore_undeclared=resources.quota_check_strategy == "IgnoreUndeclared",
        # A hub's jobs run on nodes of its members.
        node_fit=NodeFit.OFF if config.hub else config.node_fit,
        usage_decay=None
        if sharing is None
        else UsageDecay(sharing.usage_half_life_time, sharing.usage_sampling_interval, sharing.resource_weights),
    )


def job_kinds(config: Config) -> Mapping[str, JobKind]:
    """Return the shipped job kinds and those of the configuration. Raises WrongInput."""
    kinds = with_custom(config.kinds)
    return of_hub(kinds) if config.hub else kinds


def load(path: Path | None) -> Config:
    """Return the configuration of ``path`` (all defaults for None).

    Raises WrongInput with one problem per wrong key: its path, value and what is expected.
    """
    try:
        text = "" if path is None else path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise WrongInput((Problem(str(path), "", in_words(error), "give a readable YAML file"),)) from error
    return parse(text, str(path))


def parse(text: str, where: str) -> Config:
    """Return the configuration that is written as YAML ``text``; ``where`` names it in errors. Raises WrongInput."""
    try:
        document: Any = yaml_text.document(text) or {}
    except yaml_text.UnreadableYaml as error:
        raise WrongInput((Problem(where, "", str(error), "give readable YAML"),)) from error
    if not isinstance(document, dict):
        raise WrongInput((Problem(where, repr(document)[:64], "is not a mapping", "write key: value"),))
    try:
        return Config.model_validate(document)
    except ValidationError as error:
        raise WrongInput(tuple(_problem(where, item) for item in error.errors())) from error


def _problem(where: str, item: Any) -> Problem:
    """Return one complaint of pydantic in our words."""
    path = ".".join(str(part) for part in item["loc"])
    value, why, fix = repr(item["input"])[:64], said(item), "see docs/configuration.md"
    if path in _KUEUE_ALONE:
        why, fix = "is a setting of Kueue's that Tutti does not have", _KUEUE_ALONE[path]
    elif item["type"] == "extra_forbidden":
        near = difflib.get_close_matches(str(item["loc"][-1]), _key_names(Config), n=1)
        why, fix = "there is no such key", (f"perhaps {near[0]}; " if near else "") + fix
    return Problem(f"{where}#{path}", value, why, fix)


def _key_names(section: type[BaseModel]) -> set[str]:
    """Return the keys of a section as they are written, those of its sections included."""
    found = set()
    for name, declared in section.model_fields.items():
        found.add(declared.alias or name)
        for part in (declared.annotation, *get_args(declared.annotation)):
            if isinstance(part, type) and issubclass(part, BaseModel):
                found |= _key_names(part)
    return found
