"""What must hold of what a hub brings, after each write of it that is stored in any cluster, and in the end."""

import gc
from collections.abc import Callable
from typing import Final

from tests.simulation.fleet.needs import MISSING, NEEDED, SHARED, SHUT, Need, Needs
from tests.simulation.fleet.rules import STORAGES, Rules, copy_of, record_of
from tests.unit.fleet.clusters import NAMESPACE, Fleet, Side
from webhook.core.fleet.dispatch import DispatchPhase
from webhook.core.notation import names
from webhook.fleet.hub import Hub
from webhook.laboratory.simulated.objects.store import Event, Stored

_KINDS: Final = {plural: kind for kind, plural in NEEDED.items()}


class Brought:
    """Looks at each write; what does not hold it says to the rules of the story."""

    def __init__(self, world: Fleet, needs: Needs, rules: Rules) -> None:
        self._hub, self._members, self._needs, self._rules = world.hub, world.members, needs, rules
        found = world.hub.cluster.server.store.get(("", "namespaces"), "", "kube-system")
        assert found is not None
        self._origin = found.uid
        self.writes = 0
        self._copies: dict[str, set[str]] = {name: set() for name in world.members}
        """Uids of the copies that ever were in a member."""
        self._step = 0
        self._made: dict[Need, int] = dict.fromkeys((need for need in SHARED if need[1] not in MISSING), 0)
        """When what the hub has was made there."""
        self._granted: dict[str, int] = {}
        """When the grant was stored, by the uid of the copy: what the hub has had since then it has brought."""
        if needs.some:
            self._watch()

    def _watch(self) -> None:
        hub = self._hub.cluster.server.store
        for plural in NEEDED.values():
            hub.subscribe(self._hub_changed, ("", plural))
        for name, side in self._members.items():
            for plural in NEEDED.values():
                side.cluster.server.store.subscribe(self._of(name, self._changed), ("", plural))
        for kind, storage in STORAGES.items():
            hub.subscribe(self._job_changed, storage)
            for name, side in self._members.items():
                side.cluster.server.store.subscribe(self._of(name, self._copy_changed, kind), storage)

    def _of(self, member: str, look: Callable[..., None], *more: str) -> Callable[[Event], None]:
        return lambda event: look(member, event, *more)

    # -- after each write ---------------------------------------------------------------------------------------------

    def _hub_changed(self, event: Event) -> None:
        self._step += 1
        namespace, name = event.current.key
        if namespace == NAMESPACE:
            need = _KINDS[event.storage[1]], name
            if event.type == "DELETED":
                self._made.pop(need, None)
            elif event.type == "ADDED":
                self._made[need] = self._step
            if self._is_ours(event.current) or _owners(event.current):
                self._say(f"{name} of the hub itself was written")

    def _job_changed(self, event: Event) -> None:
        self._step += 1
        record = record_of(event.current)
        if record.phase is DispatchPhase.GRANTED:
            self._granted.setdefault(record.copy_uid, self._step)

    def _changed(self, member: str, event: Event) -> None:
        before, now = event.previous, event.current
        namespace, name = now.key
        what = f"{_KINDS[event.storage[1]]} {namespace}/{name} in {member}"
        if namespace == names.SYSTEM_NAMESPACE and not self._is_ours(now):
            # A Tutti's own, such as its ledger.
            return
        self.writes += 1
        if namespace != NAMESPACE:
            self._say(f"{what} is outside of the namespace of the jobs")
        if before is not None and not self._is_ours(before):
            self._say(f"{what} is the member's own, and was touched")
            return
        if before is not None and member not in self._rules.forgiven:
            # What a backup puts back may have no owner that came later.
            self._check_kept(member, what, _owners(before) - (_owners(now) if event.type != "DELETED" else set()))
        if event.type != "DELETED":
            self._check_brought(member, what, before, now)

    def _check_kept(self, member: str, what: str, lost: set[str]) -> None:
        """See that those to which it belongs no longer are copies that have gone."""
        store = self._members[member].cluster.server.store
        there = {job.uid for storage in STORAGES.values() for job in store.unordered(storage, NAMESPACE)}
        if lost & there:
            self._say(f"{what} was taken from {sorted(lost & there)}, which had it")

    def _check_brought(self, member: str, what: str, before: Stored | None, now: Stored) -> None:
        if now.key[1] in (*MISSING, SHUT):
            self._say(f"{what} was brought, which the hub has not or may not read")
        owners = _owners(now)
        if not owners or not owners <= self._copies[member]:
            self._say(f"{what} belongs to {sorted(owners)}, of which not all were copies there")
        if before is None or before.uid != now.uid or not before.object.get("immutable"):
            return
        if any(before.object.get(key) != now.object.get(key) for key in ("data", "binaryData", "immutable")):
            self._say(f"{what} is immutable, and was changed")

    def _copy_changed(self, member: str, event: Event, kind: str) -> None:
        copy, permitted = copy_of(kind, event.current)
        if not copy.job:
            return
        self._copies[member].add(copy.uid)
        before = event.previous
        if event.type == "DELETED" or not permitted or (before is not None and copy_of(kind, before)[1]):
            return
        self.check_permit(member, event.current)

    def check_permit(self, member: str, copy: Stored) -> None:
        """See that a copy whose permit has just been stored has what it needs, as far as the hub has it."""
        store, granted = self._members[member].cluster.server.store, self._granted.get(copy.uid, -1)
        for need in self._needs.required.get(copy.key[1], ()):
            if need[1] == SHUT or self._made.get(need, granted + 1) > granted:
                continue
            there = store.get(("", NEEDED[need[0]]), NAMESPACE, need[1])
            if there is None:
                self._say(f"{copy.key[1]} was permitted in {member} without {' '.join(need)}")
            elif self._is_ours(there) and copy.uid not in _owners(there):
                self._say(f"{copy.key[1]} was permitted in {member} and does not keep {' '.join(need)}")

    # -- in the end ---------------------------------------------------------------------------------------------------

    def at_rest(self, last: Hub) -> None:
        """See that nothing is left. Raises AssertionError."""
        if not self._needs.some:
            return
        for name, side in self._members.items():
            theirs = {need for member, need in self._needs.theirs if member == name}
            assert _there(side) == theirs, f"in {name} there are {_there(side)}, and its own were {theirs}"
        known = {need for need in SHARED if need[1] not in MISSING}
        assert _there(self._hub) <= known, f"the hub has {_there(self._hub) - known}"
        if last.fleet.turns:
            # Some may be left in the frames of what has failed.
            gc.collect()
        assert not last.fleet.turns, f"the hub remembers {list(last.fleet.turns)}"

    def _is_ours(self, stored: Stored) -> bool:
        return stored.labels.get(names.ORIGIN_LABEL) == self._origin

    def _say(self, words: str) -> None:
        self._rules.say(words)


def _owners(stored: Stored) -> set[str]:
    return {each["uid"] for each in stored.object["metadata"].get("ownerReferences") or ()}


def _there(side: Side) -> set[Need]:
    store = side.cluster.server.store
    return {
        (kind, stored.key[1]) for kind, plural in NEEDED.items() for stored in store.unordered(("", plural), NAMESPACE)
    }
