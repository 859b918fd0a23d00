"""What Tutti has to know of one API kind that makes gangs, as data.

An entry says where a kind keeps its suspend field, its pod templates and counts, and how its controller reports that
pods exist, run and end. Kueue's integrations (one Go package a kind) are the model for the meaning of each field; here
a kind is a value, so that an operator can add one for their own CRD in configuration.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from sys import intern

from webhook.core.notation import names
from webhook.untyped.paths import Path, render


@dataclass(frozen=True, slots=True)
class Factor:
    """One factor of a pod count: the number at ``path``, or ``default`` where it is absent, but at least ``at_least``
    and the number at ``no_less``, and at most the numbers at ``at_most``, where they are present.
    """

    path: Path
    default: int = 1
    at_most: tuple[Path, ...] = ()
    at_least: int = 0
    no_less: Path | None = None


class Layout(StrEnum):
    """How the pod sets of a source are laid out."""

    ONE = "one"
    LIST = "list"
    MAP = "map"


@dataclass(frozen=True, slots=True)
class PodSetSource:
    """Where one pod set, or a list or map of them, is described.

    ``template`` and the paths in ``factors`` and ``minimum`` are relative to the item (to the object for ``ONE``).
    """

    template: Path
    factors: tuple[Factor, ...] = ()
    """The count is their product; no factor means one pod."""
    layout: Layout = Layout.ONE
    items: Path = ()
    """Where the list or map is."""
    name: str = "main"
    """Name of a single pod set; for a list, the item's field that holds it; unused for a map (its key is the name)."""
    order: tuple[str, ...] = ()
    """Keys of a map in their fixed order, compared without case; other keys make the object unreadable."""
    minimum: Path | None = None
    """Where the owner says how few pods of the set are worth starting."""
    minimum_annotation: str | None = None
    """Annotation of the object that says the same (for single sets)."""
    count: Path | None = None
    """The number that partial admission may lower; None where the kind allows no change."""
    optional: bool = False
    """An absent template, list or map means no such pods, not an error."""


@dataclass(frozen=True, slots=True)
class Signal:
    """One way a kind's status says yes.

    Either a condition type that is True, or a path (``*`` allowed) whose value is among ``values``, is not among
    ``other_than``, or, with neither given, is a positive number, true or a non-empty text.
    """

    condition: str = ""
    path: Path = ()
    values: tuple[str, ...] = ()
    other_than: tuple[str, ...] = ()
    only_if: "Signal | None" = None
    """Says yes only where this says yes too."""


@dataclass(frozen=True, slots=True)
class ReadyCount:
    """Numbers that together reach a total: all pods (``wanted`` None) or the sum of the numbers at ``wanted``.

    A list counts with its length; items that lack the last key of ``wanted`` count one.
    """

    have: tuple[Path, ...]
    wanted: Path | None = None
    texts: tuple[str, ...] = ()
    """Texts at ``have`` that count one each."""
    pod_sets: bool = False
    """The total is the number of pod sets."""
    only_if: Signal | None = None
    """Reached only where this says yes too."""


@dataclass(frozen=True, slots=True)
class AddedContainer:
    """An init container that the kind's controller adds to pods: no template shows it, and yet it is priced."""

    requests: Mapping[str, str] = field(default_factory=dict)
    limits: Mapping[str, str] = field(default_factory=dict)
    pod_sets: tuple[str, ...] = ()
    """The pod sets that get it; all when empty."""
    but: tuple[str, ...] = ()
    """Pod sets that do not."""
    beside: str = ""
    """Only where the object has this pod set too."""
    version: str = ""
    """Only in objects of this API version."""
    name: str = ""
    """What its controller calls it; empty where nobody wrote that."""


class TemplateChange(StrEnum):
    """When the API server, or the kind's own webhook, accepts a change of pod templates."""

    ALWAYS = "always"
    SUSPENDED = "suspended"
    """Stored suspended, and its controller reports no active pod."""
    STOPPED = "stopped"
    """As ``SUSPENDED``, and without a start time in its status: batch/v1 Job."""
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class Needed:
    """A field without which a kind cannot be gated, and which not every release of its definition has."""

    field: Path
    remedy: str
    """What to do where it lacks, as an order."""


@dataclass(frozen=True, slots=True)
class OpenedPort:
    """What a controller opens on pods that have no port of this name; on its node's network a pod takes it there."""

    name: str
    number: int


@dataclass(frozen=True, slots=True)
class JobKind:
    """One API kind whose objects are gangs."""

    group: str
    version: str
    kind: str
    plural: str
    other_versions: tuple[str, ...] = ()
    """Further versions whose objects read alike; the cluster says which of all it serves."""
    pod_sets: tuple[PodSetSource, ...] = ()
    reader: str | None = None
    """Name of a built-in reader that completes or checks what ``pod_sets`` found, where paths cannot say it all."""
    added: tuple[AddedContainer, ...] = ()
    """What its controller adds to pods behind what the templates show."""
    opens: OpenedPort | None = None
    suspend: Path | None = None
    """The boolean that holds it; None for kinds held by scheduling gates."""
    aliases: tuple[str, ...] = ()
    namespaced: bool = True
    priority_classes: tuple[Path, ...] = ()
    """The kind's own PriorityClass names, first present wins."""
    queue: Path | None = None
    """The kind's own queue field, used where no queue label is."""
    quorum: Path | None = None
    """Pods that must be able to run together, where the kind has a field for it."""
    deadline_seconds: Path | None = None
    """A run-time limit that the kind's controller enforces."""
    deadline_if: Signal | None = None
    """It takes the pods away at that limit, or when the job has ended, only where this holds; None: always."""
    endless: tuple[str, ...] = ()
    """Pod sets whose pods do not end by themselves."""
    managed_by: Path | None = None
    managers: tuple[str, ...] = ()
    """Values of ``managed_by`` that mean the kind's ordinary controller."""
    given_manager: str = ""
    """What a job that waits gets as ``managed_by`` when it is made and names none."""
    succeeded: tuple[Signal, ...] = ()
    failed: tuple[Signal, ...] = ()
    active: tuple[Signal, ...] = ()
    ready: Signal | ReadyCount | None = None
    template_change: TemplateChange = TemplateChange.SUSPENDED
    reclaim: str | None = None
    """Name of a built-in rule for pods that have ended, which another start does not ask for: ``job``, ``jobset``,
    ``train-job``. By the first they give their room back while the others run.
    """
    controller_users: frozenset[str] = frozenset()
    """Usernames under which the kind's controller creates its pods and children."""
    pod_users: frozenset[str] = frozenset()
    """Those of others that create its pods for it, and much else besides: who they are says nothing of a gang."""
    child_kinds: frozenset[str] = frozenset()
    """Keys of kinds whose objects this kind's controller creates; they belong to their owner's gang."""
    namesake: "JobKind | None" = None
    """Of what its controller makes by the job's own name: where another has it, it takes that one or waits."""
    pod_owners: frozenset[str] = frozenset()
    """Further kinds (``Kind.group``) that stand between its objects and their pods."""
    name_label: str = ""
    """Label by which its controller writes the name of an object on its pods, or on what stands between."""
    pods_make_pods: bool = False
    """Its first pods make the others, under accounts of their own namespace, and own them: Spark's driver does."""
    evictable: bool = True
    """Suspending it takes its pods away. Argo's suspend leaves them: such a kind is gated at creation only."""
    ordered_start: tuple[Signal, ...] = ()
    """Any of these in the object means that its controller brings pods up one after another."""
    scheduling_gated: bool = False
    """Held by a scheduling gate on its pods instead of a suspend field; its templates are never patched at a start."""
    loose_pods: bool = False
    """Its pods cannot be told apart in advance: they carry no gang label and count as loose; the gang holds quota of
    its queue, none of the fences, and is never found incomplete."""
    labels_need: Needed | None = None
    """What carries our labels to its pods, where that is no pod template of its own."""
    prepared_start: bool = False
    """Its own webhook takes template changes only while it stays suspended: a start is two patches."""
    key: str = field(init=False, compare=False)
    """``Kind.group``, the registry key."""

    def __post_init__(self) -> None:
        """Write the key down, which each review and record asks for."""
        object.__setattr__(self, "key", intern(f"{self.kind}.{self.group}"))

    @property
    def feed(self) -> str:
        """What the feed of its jobs in this version is called: in logs, in metrics and where one is asked for."""
        return f"{self.key}/{self.version}"

    @property
    def dispatchable(self) -> bool:
        """Whether a hub places jobs of the kind in other clusters: it holds them back there, and takes them away."""
        return self.suspend is not None and self.evictable

    @property
    def placed_by(self) -> Path:
        """Where an object says that a hub places it: ``managedBy``, or an annotation of a kind without that field."""
        return self.managed_by or ("metadata", "annotations", names.MANAGED_BY)

    @property
    def placed_by_name(self) -> str:
        """What people call that place."""
        return f"annotation {names.MANAGED_BY}" if self.managed_by is None else render(self.managed_by)

    @property
    def every_version(self) -> tuple["JobKind", ...]:
        """The kind in each of its versions, the preferred one first."""
        return (self, *(self.at(version) for version in self.other_versions if version != self.version))

    def at(self, version: str) -> "JobKind":
        """Return this kind in one version, such as a record's."""
        return self if version in ("", self.version) else replace(self, version=version)

    @property
    def api_version(self) -> str:
        """``group/version``; the core group has no group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def singular(self) -> str:
        """The lower-case name kubectl takes."""
        return self.kind.lower()
