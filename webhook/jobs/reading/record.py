"""One job object as Tutti knows it: the gang it asks for, where it stands, and where to patch it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from webhook.core.fleet.dispatch import DispatchPhase
from webhook.core.ledger.record import Membership, Reservation
from webhook.core.model.frozen import frozen
from webhook.core.model.gang import Gang
from webhook.core.model.interning import interned
from webhook.core.notation import names
from webhook.core.notation.problem import Problem
from webhook.jobs.reading.ended import Ended, given_back
from webhook.jobs.reading.missing_class import MissingClass


@dataclass(frozen=True, slots=True)
class Owner:
    """The controller ownerReference of an object."""

    kind: str
    """``Kind.group``, as registry keys are written."""
    name: str
    uid: str


@frozen
class Admission:
    """The annotation ``tutti.dev/admission`` of a started job: its reservation, rebuildable, and what was injected.

    ``uid`` is that of the job it was written for: a copy pasted onto another job is not believed.
    """

    uid: str
    epoch: int
    seq: int
    queue: str | None
    counts: Mapping[str, int]
    flavors: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Pod set to resource to flavor."""
    since_seconds: float = 0.0
    injected: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    """Pod set to what its template gained: ``nodeSelector`` keys and ``tolerations`` count, to be taken back later."""
    original_counts: Mapping[str, int] = field(default_factory=dict)
    """Pod set to the count its owner wrote, where partial admission lowered it."""
    attempts: int = 0
    """How often in a row it had not become whole in time before this start."""
    ran_seconds: float = 0.0
    """How long it had run in earlier starts, which its run-time limit counts too."""
    membership: Membership | None = None
    """The ensemble that it was started with."""
    charges: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Pod set to resource to what one pod is charged, where that differs from its price."""
    adopted: bool = False
    """It ran before Tutti knew it."""
    cohorts: tuple[str, ...] = ()
    """What its queue was below, upwards."""
    domains: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Pod set to the labels of the nodes that alone its pods may go to."""
    spared: Mapping[str, int] = field(default_factory=dict)
    """Pod set to how many of its pods had ended before, for which there is no room in the reservation."""

    def is_of(self, reservation: Reservation) -> bool:
        """Return whether it is the start that this very reservation authorised. Annotations keep milliseconds."""
        return abs(self.since_seconds - reservation.since_seconds) < 0.001


@frozen
class Requeue:
    """The annotation ``tutti.dev/requeue`` of a stopped job: its place and back-off."""

    reason: str
    """Why it was stopped, as ``core.reasons.eviction`` has it."""
    place_seconds: float
    """Unix time that orders it in its queue."""
    attempts: int = 0
    not_before_seconds: float = 0.0
    message: str = ""
    ran_seconds: float = 0.0
    """How long it has run in all its starts, which its run-time limit counts."""
    succeeded_pods: int = 0
    """Pods of its ensemble that had succeeded and left before it was stopped."""
    undo: Admission | None = None
    """The start it was stopped from, while what that start changed in the pod templates and counts is still there; the
    patch ``restore`` takes it back and clears this."""
    start: Admission | None = None
    """The same where there is nothing to undo: while pods of it are left, it holds what it held, whatever becomes of
    the ledger."""

    @property
    def stopped_from(self) -> Admission | None:
        """The start it was stopped from, while anything of it may be left."""
        return self.undo or self.start


def spared_at_start(
    reservation: Reservation, admission: Admission | None, requeue: Requeue | None, *, suspended: bool
) -> Mapping[str, int] | None:
    """Return how many pods of each set the start that ``reservation`` authorised was spared, as its job says, which may
    have been stopped since; None while there is no such start.
    """
    noted: tuple[Admission | None, ...] = (admission,)
    if requeue is not None:
        noted = (admission, requeue.undo, requeue.start)
    for start in noted:
        if start is not None and start.is_of(reservation):
            return start.spared
    return None if suspended else {}


@frozen
class Template:
    """Where a pod set's template is in the object, and what a patch must know of it."""

    pod_set: str
    path: str
    """JSON pointer of the pod template, for example ``/spec/template``."""
    has_metadata: bool
    marks: Mapping[str, str] | None
    """The labels of ours on it; None when the map of labels is absent (a patch must create it)."""
    has_annotations: bool
    node_selector: Mapping[str, str] | None
    tolerations: int | None
    """Number of tolerations; None when the list is absent."""
    count_path: str | None = None
    """JSON pointer of the number of pods, where partial admission may lower it."""
    count_written: int | None = None
    """The number at ``count_path``; None when absent (a patch must create it)."""
    count_follower: str | None = None
    """JSON pointer of another number that is always the one at ``count_path``."""
    metadata_path: str | None = None
    """JSON pointer of the map that holds the pods' labels and annotations, where it is not ``path``/metadata."""
    spec_path: str | None = None
    """JSON pointer of the map that holds node selector and tolerations, where it is not ``path``/spec."""
    missing: tuple[tuple[str, object], ...] = ()
    """(JSON pointer, value) of lists and maps on the way to the two paths that a patch must add first."""
    tolerations_along: tuple[Mapping[str, object], ...] = ()
    """Tolerations of its owner that a patch must write along with others, which would take their place."""
    node: str = ""
    """The node that the template names for its pods, past any scheduler."""
    containers: tuple[str, ...] = ()
    """Names of its containers, and of those that are known to be added to its pods."""


@frozen
class Bystander:
    """An object of a known job kind that does not wait for us: only whose gang its pods are of matters."""

    namespace: str
    name: str
    uid: str
    resource_version: int
    owner: Owner | None
    """As of a ``JobRecord``."""
    made_for: str = ""
    """As of a ``PodRecord``."""
    named: tuple[str, ...] = ()
    """Names of objects that it may have been made for, where it has no owner."""
    running: bool = False
    """It is there to have pods: it has not ended, nor is it suspended or being deleted."""


@frozen
class JobRecord:
    """One object of a known job kind."""

    kind: str
    namespace: str
    name: str
    uid: str
    resource_version: int
    created_seconds: float
    gang: Gang | None = None
    """What it asks; None when the object cannot be read as a gang, then ``problem`` says why."""
    problem: Problem | None = None
    queue_label: str | None = None
    owner: Owner | None = None
    """The controller to whose gang it belongs; None for a gang of its own, which a CronJob may control all the same."""
    suspended: bool = False
    finished: str | None = None
    """``Succeeded`` or ``Failed`` once it has ended."""
    active: bool = False
    """Its controller reports pods of its own."""
    ready: bool = False
    """Its controller reports all of its pods running or done."""
    deleting: bool = False
    marked: bool = False
    """A pod template carries our gang label: it passed the mutation. An unmarked running job predates Tutti."""
    restorable: bool = False
    """The API server would accept a change of its pod templates now (stored suspended, stopped)."""
    managed_by_other: bool = False
    """spec.managedBy names a foreign controller: not ours to start or stop."""
    has_annotations: bool = False
    admission: Admission | None = None
    requeue: Requeue | None = None
    held: bool = False
    start_time_left: bool = False
    """Stopped, but before Kubernetes 1.36 its templates stay frozen until the start time of its last run is cleared."""
    ended: Mapping[str, Ended] = field(default_factory=dict)
    """Of each set of which pods have ended for good."""
    spared: Mapping[str, int] = field(default_factory=dict)
    """How many of these another start need not ask for."""
    gives_back: bool = False
    """What has ended gives its room back while the others run. If not, it may run again."""
    winding_down: bool = False
    """Its controller replaces no pod any more, and calls it complete once none is active."""
    templates: tuple[Template, ...] = ()
    generation: int = 0
    version: str = ""
    """The API version that it was read in, where a kind has several."""
    suspend_gap: str | None = None
    """JSON pointer of the first missing map on the way to the suspend field; None when none is missing."""
    out_of_bounds: str = ""
    """Which rule of its namespace's LimitRanges its pods would break; they could not be created."""
    missing_class: MissingClass | None = None
    """The priority class that it names and that does not exist (yet): it waits until it does."""
    admission_gates: str = ""
    """Those who have to agree before it is queued, by the annotation that Kueue honours too."""
    dispatch: DispatchPhase = DispatchPhase.NOWHERE
    """Of a hub's job: how far it has come into a member."""
    for_a_member: bool = False
    """A hub's job that only a member starts: nothing of the hub's own nodes is written into it."""
    dispatching_suspended_by: str = ""
    """Of a hub's job: the user's policy by which it is offered to no member."""
    awaits_permit: bool = False
    """A copy from a hub that has not given leave to start it: it is reserved for, and waits."""
    hub: str = ""
    """Of a copy from a hub: the uid of that hub's kube-system."""
    given_up: bool = False
    """A copy that never starts again: its member has heard nothing of its hub for too long."""
    ordered_start: bool = False
    """Its controller brings pods up one after another: an incomplete gang is no failure while it makes progress."""
    waiting_pods: int = 0
    """Of a gang of plain pods: how many wait behind our scheduling gate."""
    finished_seconds: float = 0.0
    """Unix time at which it ended, as its controller says; 0 while it has not, or when that is not told."""
    failure: str = ""
    """Of one that has failed: what its controller says of that."""
    run_limit_seconds: int | None = None
    """The limit on its run time over all its starts that Tutti enforces; its controller may know a shorter one."""
    made_for: str = ""
    """Uid of the gang that it was made for, its owner gone; where it asks for a queue itself, by our mark, or without
    any of ours."""
    named: tuple[str, ...] = ()
    """As of a ``Bystander``, where it asks for no queue of its own, or is suspended without any mark of ours."""

    @property
    def is_ours(self) -> bool:
        """It is a gang of its own, and Tutti's to start and stop."""
        return self.owner is None and not self.managed_by_other

    @property
    def running(self) -> bool:
        """As of a ``Bystander``."""
        return self.finished is None and not self.suspended and not self.deleting

    @property
    def left_over(self) -> bool:
        """What it bears was written for another gang: it was never to start by itself."""
        own = (self.uid, names.GANG_PENDING_IN_NAMESPACE)
        marks = [(template.marks or {}).get(names.GANG_LABEL) for template in self.templates]
        return bool(self.made_for) and any(mark is not None and mark not in own for mark in marks)

    @property
    def asks_itself(self) -> bool:
        """It names a queue, or joins a PodGroup: it takes its turn by itself wherever it comes from."""
        return self.queue_label is not None or (self.gang is not None and self.gang.pod_group is not None)

    @property
    def dispatched(self) -> bool:
        """A member may run it: what it holds here stays held whatever pods there are here."""
        return self.dispatch is not DispatchPhase.NOWHERE

    @property
    def awaits_member(self) -> bool:
        """Only a member starts it, and none has taken it yet."""
        nowhere = self.dispatch in (DispatchPhase.NOWHERE, DispatchPhase.OFFERED)
        return self.for_a_member and nowhere and self.finished is None

    @property
    def last_start(self) -> Admission | None:
        """The start that it runs by, or that it was stopped from while pods of that may be left."""
        return self.admission or (None if self.requeue is None else self.requeue.stopped_from)

    @property
    def attempts(self) -> int:
        """How often in a row it had not become whole in time, before its start if it has started."""
        noted = self.admission or self.requeue
        return 0 if noted is None else noted.attempts

    @property
    def ran_seconds(self) -> float:
        """How long it ran in earlier starts."""
        noted = self.admission or self.requeue
        return 0.0 if noted is None else noted.ran_seconds

    @property
    def place_seconds(self) -> float:
        """Unix time that orders it in its queue, by its own word."""
        return self.created_seconds if self.gang is None else self.gang.created_seconds

    @property
    def asks(self) -> Gang | None:
        """What a start of it asks: the gang that its owner wrote, less the pods that it is spared."""
        return None if self.gang is None else self.gang.without(self.spared)

    def share_with(self, earlier: "JobRecord") -> None:
        """Take what is equal in an earlier record of this object from there: others may hold on to that for long.

        The engine does, to the gang that it admitted, and maps do, to the names by which it was first put there.
        """
        for name in ("uid", "namespace", "name", "queue_label", "gang", "admission", "templates"):
            mine, its = getattr(self, name), getattr(earlier, name)
            if mine is not its and mine == its:
                object.__setattr__(self, name, its)

    def given_back(self, reservation: Reservation) -> Mapping[str, int]:
        """Return how many pods of each set of its ``reservation`` will not run again.

        None before it is started: until then nothing says how many of them that start will be spared.
        """
        spared = spared_at_start(reservation, self.admission, self.requeue, suspended=self.suspended)
        if not self.gives_back or spared is None:
            return interned({})
        return interned(given_back(self.gang, self.ended, reservation, spared))

    @property
    def present(self) -> int:
        """How many of its pods have not ended, as its status says; 0 where none has ended for good."""
        return sum(each.present for each in self.ended.values())

    @property
    def reclaimed(self) -> Mapping[str, int]:
        """Pods of each set, as its owner wrote it, that have ended and will not be replaced."""
        counts = {} if self.gang is None else self.gang.counts
        found = {name: each.unwanted(counts.get(name, 0)) for name, each in self.ended.items()}
        return {name: number for name, number in found.items() if number}

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"
