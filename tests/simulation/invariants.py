"""What must hold after every write that the server stores, whoever made it, and what must hold once all is calm."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from zlib import crc32

import orjson

from tests.simulation import flavors, queues
from tests.simulation.bugs import Bugs
from tests.simulation.claims import Claims
from tests.simulation.counted_groups import CountedGroups
from tests.simulation.ensembles import Ensemble
from tests.simulation.gpu_pods import GPU, GpuPods
from tests.simulation.hostile import PREFIX
from tests.simulation.kept_nodes import large_to_come, not_to_come
from tests.simulation.load import how_it_ended, stored_job
from tests.simulation.mixed_ledger import PutBack, StoredLedger
from tests.simulation.queues import COHORT, CREDITS, CREDITS_A_GPU, HARD_PODS
from tests.simulation.racks import Racks, without_rack
from tests.simulation.running import Running
from tests.simulation.shapes import STORAGES, is_suspended
from tests.simulation.trees import Held, Trees, held_by
from tests.simulation.weather import Weather
from webhook.assembly.reconciler import ReconcilerParts
from webhook.clock import LoopClock
from webhook.controllers.gang_record import GangRecords, Phase
from webhook.core.ledger.record import Ledger, Reservation
from webhook.core.notation import names
from webhook.core.notation.amounts import FlavorResource
from webhook.jobs.kinds.shipped import JOB
from webhook.jobs.reading.annotations import decode_admission
from webhook.jobs.reading.made_for import made_for
from webhook.laboratory.simulated.cluster import SimulatedCluster
from webhook.laboratory.simulated.controllers.indexes import parse_indexes
from webhook.laboratory.simulated.objects.store import Event


class Violation(AssertionError):
    """An invariant does not hold."""


class Invariants:
    """Checks one cluster. ``steps`` counts the stored writes it looked at, ``story`` is the checksum of all of them."""

    def __init__(
        self, cluster: SimulatedCluster, seed: int, weather: Weather, bugs: Bugs, ensembles: Sequence[Ensemble] = ()
    ) -> None:
        self._weather = weather
        self._ensembles = ensembles
        self._cluster = cluster
        self._server = cluster.server
        self._seed = seed
        self.steps = self.story = 0
        self.failure: Exception | None = None
        self._bugs = bugs
        self.recent: Callable[[], Sequence[Trees]] | None = None
        """Where policy changes: what a process may know of it."""
        self.gpus_max: int | None = None
        """Where nothing else bounds them: how many GPUs all queues have together."""
        self._ledger = Ledger()
        self._stored_ledger = StoredLedger()
        self.rebuilt: list[Reservation] = []
        """Entries that a rebuild had to find again, as they were before."""
        self._mixed, self._claims = False, Claims()
        """What is stored of the ledger is of two times: what is held is all that either says."""
        self._put_back: PutBack | None = None
        """Somebody put an old copy into the ledger, of which no leader has judged yet."""
        self._lost: Ledger | None = None
        """What stood in the ledger before it was deleted or edited, until another is written."""
        self._racks, self._gpu_pods = Racks(), GpuPods(cluster.server.store)
        self.running: Running | None = None
        """Where tenants are hostile: what runs, whatever they say that it is."""
        self._work: dict[str, int] = {}
        """Uid of a Job to how many pods have to succeed in all."""
        self._running: dict[str, dict[str, Any]] = {}
        """Pods of gangs that were let go and have not ended, by uid."""
        self._succeeded_pod: dict[str, str] = {}
        self._succeeded_counts: Counter[str] = Counter()
        """Gang to its succeeded pods."""
        self._groups = CountedGroups()
        self._alive: dict[str, str] = {}
        """Pods that have not ended, with their namespaces."""
        self._done: dict[str, int] = {}
        """Uid of a Job to the pods of it that have ended for good, as its status says."""
        self._ended: set[str] = set()
        """Uids of jobs that have ended."""
        self._cohorts: dict[str, str | None] = dict(COHORT)
        """What each queue was below when it was seen last."""

        def storage(version: str, kind: str) -> Any:
            resource = cluster.server.registry.of_kind(version, kind)
            assert resource is not None, f"{kind} is not served"
            return resource.storage

        self._config_maps = storage("v1", "ConfigMap")
        self._cluster_queues = storage("kueue.x-k8s.io/v1beta2", "ClusterQueue")
        self._pods = storage("v1", "Pod")
        self._jobs = {each: kind for kind, each in STORAGES.items()}

    @contextmanager
    def set_back(self) -> Iterator[None]:
        """Check nothing while the store is set back; what it has then is what was seen last."""
        known, self.failure = self.failure, self.failure or Violation("being set back")
        yield
        self.failure, self._ledger, self._lost = known, Ledger(), None
        self._read_ledger()
        jobs = (stored for storage in self._jobs for stored in self._server.store.items(storage))
        self._ended = {stored.uid for stored in jobs if how_it_ended(stored.object) is not None}
        self._done = {}
        for uid in [*self._alive, *self._succeeded_pod, *self._groups.uids()]:
            self._forget_pod(uid)
        for stored in self._server.store.items(self._pods):
            self._remember_pod(stored.uid, stored.object)
        self._racks.set_back(self._server.store.items(self._pods))
        if self.running is not None:
            self.running.set_back(self._server.store)

    @contextmanager
    def ledger_not_believed(self, name: str) -> Iterator[None]:
        """Have somebody write into an object of the ledger what may look like one: until a leader has judged what it
        held is held.

        It has when the ledger is another one than was put there, and more than taken over.
        """
        self._put_back = put = PutBack(name)
        self._lost = self._lost or self._ledger
        self._ledger = replace(self._ledger, epoch=0, seq=0)
        try:
            yield
        finally:
            put.done(self._read_parts())

    def watch(self) -> Callable[[], None]:
        """Check after every write from now on; returns how to stop."""
        return self._server.store.subscribe(self._stored)

    def _stored(self, event: Event) -> None:
        self.steps += 1
        self.story = crc32(event.current.raw, self.story)
        if self.failure is not None:
            return
        try:
            self._check(event)
        except Exception as failure:
            # Raising here would blame the writer; the run fails as soon as it looks, also where a check is wrong.
            self.failure = failure

    def watch_cycles(self, parts: ReconcilerParts) -> None:
        """Compare what a reconciler remembers with what it wrote, after each cycle that it leads."""
        usual = parts.reconciler.after_cycle

        def check() -> None:
            usual()
            ledger = parts.terms.keeper.ledger
            if ledger is not None and self.failure is None:
                self._remembered_is_stored(parts.reconciler.records, ledger)

        parts.reconciler.after_cycle = check

    def _remembered_is_stored(self, records: GangRecords, ledger: Ledger) -> None:
        """Check that a leader has each gang in the phase that its ledger says, and that it failed on no job."""
        stopping = {uid: entry.stopping is not None for uid, entry in ledger.entries.items()}
        remembered = {each.uid: each.phase is not Phase.RESERVED for each in records if each.holds}
        where = f"seed {self._seed}, step {self.steps}"
        if remembered != stopping:
            wrong = dict(sorted(remembered.items() ^ stopping.items()))
            self.failure = Violation(f"{where}: gangs not in the phase of the ledger: {wrong}")
        elif self._bugs.more_than_given():
            self.failure = Violation(f"{where}: the reconciler failed on a job of its own")

    def _check(self, event: Event) -> None:
        self._racks.take(event)
        if torn := self._racks.torn():
            self._fail(torn)
        if self.running is not None:
            self.running.take(event)
            if wrong := self.running.too_much(LoopClock().now()):
                self._fail(wrong)
        if event.storage == self._cluster_queues and event.current is not None:
            self._cohorts[event.current.key[-1]] = event.current.object["spec"].get("cohortName")
        elif event.storage == self._config_maps:
            before = self._ledger
            self._read_ledger()
            if self.running is not None:
                self.running.take_entries(self._ledger.entries.values())
            if self._mixed:
                return
            self._put_back = None
            self._no_ensemble_in_part(before)
            if wrong := self._claims.wrong_in(self._ledger):
                self._fail(wrong)
            self._no_queue_oversubscribed(before)
            if wrong := queues.overdrawn(self._weather, self._charged()):
                self._fail(wrong)
            self._rebuilt_is_as_it_was()
        elif event.storage == self._pods:
            self._note_pod(event)
            if self._weather.two_flavors and (wrong := flavors.elsewhere(event.current.object, self._ledger.entries)):
                self._fail(wrong)
            self._gpu_pods.take(event, self._ledger.entries)
            self._pods_are_reserved()
            if wrong := self._groups.too_large():
                self._fail(wrong)
            self._no_fence_oversubscribed()
            self._no_more_gpus_run_than_there_are()
        else:
            kind = self._jobs.get(event.storage)
            if kind is not None and event.current is not None:
                if how_it_ended(event.current.object) is not None:
                    self._ended.add(event.current.uid)
                if kind == "Job":
                    spec = event.current.object["spec"]
                    if not spec.get("suspend"):
                        # As one that started with fewer pods is stopped, it gets the others back: they do not run.
                        self._work[event.current.uid] = spec.get("completions") or spec["parallelism"]
                    status = event.current.object.get("status") or {}
                    winds_down = "completions" not in spec and status.get("succeeded")
                    failed = status.get("failed", 0) if winds_down else len(parse_indexes(status.get("failedIndexes")))
                    self._done[event.current.uid] = status.get("succeeded", 0) + failed
                self._running_is_reserved(kind, event.current.object)

    def note(self, wrong: str) -> None:
        """Have the run fail: something that others looked at does not hold."""
        if self.failure is None:
            self.failure = Violation(f"seed {self._seed}, step {self.steps}: {wrong}")

    def _fail(self, message: str) -> None:
        raise Violation(f"seed {self._seed}, step {self.steps}: {message}")

    # -- after every write -----------------------------------------------------------------------------------------

    def _read_parts(self) -> StoredLedger:
        stored = self._server.store.items(self._config_maps, names.SYSTEM_NAMESPACE)
        self._stored_ledger.take_in(each.object for each in stored)
        return self._stored_ledger

    def _read_ledger(self) -> None:
        parts = self._read_parts()
        ledger = parts.whole()
        self._mixed = self._put_back is not None and not self._put_back.is_judged(ledger)
        if self._mixed:
            # The leader may not have noticed: what it reserves on other pages stands there.
            entries = parts.all_entries(self._ledger.entries)
            self._ledger = replace(self._ledger, epoch=0, seq=0, entries=entries)
            return
        if ledger is None:
            self._lost = self._lost or self._ledger
            # What it held is held on. How far it had come nobody may know who has to rebuild it.
            self._ledger = replace(self._ledger, epoch=0, seq=0, entries=parts.held_on(self._ledger.entries))
            return
        if ledger.version < self._ledger.version:
            self._fail(f"the ledger went back from {self._ledger.version} to {ledger.version}")
        self._ledger = ledger

    def _no_queue_oversubscribed(self, before: Ledger) -> None:
        if self.recent is None:
            self._fits([queues.trees_in(self._weather)], self._ledger.entries)
            return
        # Under a new policy what runs may be too much; nothing is to be admitted on top of that.
        new = {uid: entry for uid, entry in self._ledger.entries.items() if uid not in before.entries}
        if new:
            self._fits(self.recent(), new)

    def _rebuilt_is_as_it_was(self) -> None:
        """Check that what runs holds after a rebuild what it held before, and is charged the same."""
        lost = self._lost
        if lost is None or self._ledger.epoch == 0:
            return
        self._lost, live = None, self._gangs_alive()
        for storage, kind in self._jobs.items():
            for stored in self._server.store.items(storage):
                job, before = stored.copy(), lost.entries.get(stored.uid)
                noted = decode_admission((job["metadata"].get("annotations") or {}).get(names.ADMISSION), stored.uid)
                if (
                    is_suspended(kind, job)
                    or how_it_ended(job)
                    or before is None
                    or noted is None
                    or not noted.is_of(before)
                    or ("deletionTimestamp" in job["metadata"] and stored.uid not in live)
                ):
                    continue
                self.rebuilt.append(before)
                after = self._ledger.entries.get(stored.uid)
                # What it grew by last may be written on it already, or shown by its pods alone, or not at all.
                counts = noted.counts if after is None else after.counts
                least, most = noted.counts, {**noted.counts, **before.counts}
                odd = any(not least.get(name, 0) <= count <= most.get(name, 0) for name, count in counts.items())
                held, holds = held_by(before, counts), None if after is None else held_by(after, counts)
                if odd or holds != held:
                    self._fail(f"{before} held {held} by {least} to {most}, after the rebuild {holds} by {counts}")

    def _fits(self, policies: Sequence[Trees], asked: Mapping[str, Reservation]) -> None:
        """Check that queues hold no more than one of ``policies`` allows in the trees of those ``asked`` about."""
        over = [self._overdrawn(policy, asked) for policy in policies]
        if all(over):
            self._fail(over[-1])

    def _overdrawn(self, policy: Trees, asked: Mapping[str, Reservation]) -> str:
        """Return what is oversubscribed, empty when nothing is."""
        held: list[Held] = []
        scattered = 0
        bound, live = Counter[str](), Counter[tuple[str, str]]()
        for pod in self._gang_pods():
            labels = pod["metadata"]["labels"]
            bound[labels[names.GANG_LABEL]] += bool(pod["spec"].get("nodeName"))
            live[labels[names.GANG_LABEL], labels.get(names.POD_SET_LABEL, "")] += 1
        for reservation, usage in self._charged():
            counted = policy.charged(reservation, self._cohorts.get(reservation.queue or "")) is not None
            for key, amount in usage.items():
                each = {GPU: 1, CREDITS: CREDITS_A_GPU}.get(key.resource)
                if each is not None and counted:
                    held.append((reservation, amount // each))
                    to_come = large_to_come(reservation, bound[reservation.uid])
                    scattered += min(amount // each, max(to_come, not_to_come(reservation, live)))
        over_nodes = sum(amount for _, amount in held) - scattered - sum(self._weather.nodes) * 1000
        if over_nodes > 0 and over_nodes > self._displaced():
            # Of pods that ask one each and may go anywhere the sum tells whether all fit.
            return f"the nodes have {sum(self._weather.nodes)} GPUs, more are reserved: {self._all_held()}"
        over = policy.oversubscribed(held, self._cohorts, {entry.queue or "" for entry in asked.values()})
        return over and f"{over}: {self._all_held()}"

    def _displaced(self) -> int:
        """Return what gangs that go on lack because others have landed in the racks where their pods are to go."""
        going_on = [entry for entry in self._ledger.entries.values() if entry.stopping is None]
        nodes, two_flavors = self._weather.nodes, self._weather.two_flavors
        return 1000 * without_rack(nodes, self._gang_pods(), going_on, two_flavors=two_flavors)

    def _charged(self) -> Iterator[tuple[Reservation, Mapping[FlavorResource, int]]]:
        """Yield each gang that holds anything, and what it is charged."""
        live = self._gangs_alive()
        for reservation in self._ledger.entries.values():
            if reservation.uid not in self._ended or reservation.uid in live:
                yield reservation, reservation.usage(self._given_back(reservation))
            # Else it holds nothing, though its entry is freed later; pods of it that succeeded may be deleted by then.

    def _all_held(self) -> str:
        return ", ".join(f"{entry} {entry.counts} {entry.stopping}" for entry in self._ledger.entries.values())

    def _no_ensemble_in_part(self, before: Ledger) -> None:
        """Check that who starts, starts with a quorum of its PodGroup, and that no less than that goes on."""
        going_on: dict[tuple[str, str], list[Reservation]] = {}
        for entry in self._ledger.entries.values():
            if entry.membership is not None and entry.stopping is None:
                going_on.setdefault((entry.namespace, entry.membership.ensemble), []).append(entry)
        for key, entries in going_on.items():
            pods = sum(sum(entry.counts.values()) for entry in entries)
            needed = max(entry.membership.still_needed for entry in entries if entry.membership is not None)
            if pods < needed:
                self._fail(f"of PodGroup {key} {pods} pods are reserved, it needs {needed}: {list(map(str, entries))}")
        for each in self._ensembles:
            held = [
                entry
                for entry in self._ledger.entries.values()
                if entry.namespace == each.namespace and entry.name in each.jobs and entry.stopping is None
            ]
            if any(entry.uid not in before.entries for entry in held):
                pods = sum(sum(entry.counts.values()) for entry in held)
                pods += sum(pods_of for name, (kind, pods_of) in each.jobs.items() if self._succeeded(each, kind, name))
                if pods < each.least:
                    self._fail(f"{each.name} starts with {pods} of {each.least} pods: {list(map(str, held))}")

    def _succeeded(self, each: Ensemble, kind: str, name: str) -> bool:
        stored = stored_job(self._cluster, kind, each.namespace, name)
        return name in each.succeeded or (stored is not None and how_it_ended(stored) not in (None, "Failed"))

    def _gangs_alive(self) -> set[str]:
        return {pod["metadata"]["labels"][names.GANG_LABEL] for pod in self._gang_pods()}

    def _gang_pods(self) -> list[dict[str, Any]]:
        return list(self._running.values())

    def _given_back(self, reservation: Reservation) -> Mapping[str, int]:
        """Return how many pods of each set will not run again: others may have their room. None but a Job says so."""
        if reservation.kind != JOB.key:
            return {}
        # Its controller has counted those that ended: they may be deleted since. Others may be among them.
        ended = max(self._succeeded_counts[reservation.uid], self._done.get(reservation.uid, 0))
        live = sum(pod["metadata"]["labels"][names.GANG_LABEL] == reservation.uid for pod in self._gang_pods())
        return {
            name: count - min(count, max(live, self._work.get(reservation.uid, count) - ended))
            for name, count in reservation.counts.items()
        }

    def _note_pod(self, event: Event) -> None:
        """Keep what is asked of all pods at each step up to date."""
        uid, pod = event.current.uid, event.current.object
        self._forget_pod(uid)
        if event.type != "DELETED":
            self._remember_pod(uid, pod)

    def _remember_pod(self, uid: str, pod: dict[str, Any]) -> None:
        metadata = pod["metadata"]
        labels, phase = metadata.get("labels", {}), (pod.get("status") or {}).get("phase")
        gates = pod["spec"].get("schedulingGates") or ()
        gang = labels.get(names.GANG_LABEL)
        if phase not in ("Succeeded", "Failed"):
            self._alive[uid] = metadata["namespace"]
            # Plain pods that wait behind our gate are stored, and take nothing of what was reserved.
            if gang and {"name": names.SCHEDULING_GATE} not in gates:
                self._running[uid] = pod
        elif phase == "Succeeded":
            # Those of a job that was adopted bear no label: it is a Job of one pod set.
            owners = (owner["uid"] for owner in metadata.get("ownerReferences") or () if owner.get("controller"))
            self._succeeded_pod[uid] = gang or next(owners, "")
            self._succeeded_counts[self._succeeded_pod[uid]] += 1
        self._groups.take(uid, pod)

    def _forget_pod(self, uid: str) -> None:
        self._alive.pop(uid, None)
        self._running.pop(uid, None)
        self._groups.forget(uid)
        if uid in self._succeeded_pod:
            self._succeeded_counts[self._succeeded_pod.pop(uid)] -= 1

    def _pods_are_reserved(self) -> None:
        counts: dict[tuple[str, str], int] = {}
        for pod in self._gang_pods():
            labels = pod["metadata"]["labels"]
            gang, pod_set = labels[names.GANG_LABEL], labels.get(names.POD_SET_LABEL, "")
            if pod["metadata"]["name"].startswith(PREFIX) and self._is_theirs(gang):
                continue
            if gang not in self._ledger.entries:
                self._fail(f"pod {pod['metadata']['name']} runs without a reservation")
            if not pod["metadata"].get("deletionTimestamp"):
                counts[gang, pod_set] = counts.get((gang, pod_set), 0) + 1
        for (gang, pod_set), count in counts.items():
            reserved = self._ledger.entries[gang].counts.get(pod_set, 0)
            if count > reserved:
                self._fail(f"{self._ledger.entries[gang]} has {count} pods in {pod_set}, reserved {reserved}")

    def _is_theirs(self, gang: str) -> bool:
        """Return whether a gang is no honest one: what runs of it is counted by ``running``, not by its labels."""
        return gang not in self._ledger.entries or self._ledger.entries[gang].name.startswith(PREFIX)

    def _no_fence_oversubscribed(self) -> None:
        if self.recent is not None or self._weather.fences:
            return
        for namespace, hard in HARD_PODS.items():
            live = sum(1 for of in self._alive.values() if of == namespace)
            if live > hard:
                self._fail(f"{namespace} has {live} pods, its ResourceQuota allows {hard}")

    def _no_more_gpus_run_than_there_are(self) -> None:
        if self.gpus_max is not None and len(live := sorted(self._gpu_pods.live())) > self.gpus_max:
            self._fail(f"{len(live)} pods of a GPU each run, queues have {self.gpus_max}: {live}")

    def _running_is_reserved(self, kind: str, job: dict[str, Any]) -> None:
        metadata = job["metadata"]
        runs_with_owner = any(owner.get("kind") == "JobSet" for owner in metadata.get("ownerReferences") or ())
        # Of one that was orphaned only pods tell whether anything runs.
        runs_with_owner |= made_for(metadata.get("labels") or {}) != ""
        gated = names.GANG_LABEL in orjson.dumps(job["spec"]).decode()
        if runs_with_owner or not gated:
            return
        if "deletionTimestamp" in metadata:
            return  # A finalizer keeps it: it gets no more pods.
        if metadata["name"].startswith(PREFIX):
            return  # What asks for no queue may run; that those which do run within it is seen by their pods.
        if not is_suspended(kind, job) and not how_it_ended(job) and metadata["uid"] not in self._ledger.entries:
            self._fail(f"{job['kind']} {metadata['name']} is un-suspended without a reservation")

    def limits_were_kept(self, overran: list[str]) -> None:
        """Check that no job ran to its end beyond its limit; only where nothing delays a stop."""
        if overran:
            self._fail(f"ran to their ends beyond their limits: {overran}")

    # -- at rest ---------------------------------------------------------------------------------------------------

    @property
    def ledger(self) -> Ledger:
        """What is stored."""
        return self._ledger

    @property
    def reserved(self) -> bool:
        """The ledger has entries."""
        return bool(self._ledger.entries)

    def at_rest(self, unfinished: dict[tuple[str, str], str], reasons: dict[str, str]) -> None:
        """Check that nothing is left over and nobody waits who could run. Raises Violation."""
        if self.failure is not None:
            raise self.failure
        if unfinished:
            self._fail(f"still unfinished with nothing in the way: {sorted(unfinished)} {reasons}")
        if self._ledger.entries:
            left = ", ".join(str(reservation) for reservation in self._ledger.entries.values())
            self._fail(f"reservations left over at rest: {left}")
        if self._ledger.claims or self._ledger.bookings:
            left = sorted(self._ledger.claims.keys() | self._ledger.bookings.keys())
            self._fail(f"claims or bookings left over at rest: {left}")
        if self._gang_pods():
            self._fail("gang pods left over at rest")
