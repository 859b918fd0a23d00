"""A member for the protocol's tests: its API server, Tutti, job controller and pods, one small step at a time."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from webhook.core.fleet.dispatch import Offer
from webhook.core.fleet.permit import permit_text, permits, revoked_text
from webhook.core.fleet.sight import Copy, Sight

HUB = "hub"
PODS = 2


@dataclass
class Stored:
    """An object of the job's kind."""

    uid: str
    hub: str
    job: str
    offer: Offer
    version: int = 1
    permit: str = ""
    suspended: bool = True
    deleting: bool = False
    finished: bool = False
    failed: bool = False

    @property
    def permitted(self) -> bool:
        return permits(self.permit, str(self.offer), self.uid)

    def shown(self) -> Copy:
        return Copy(
            self.uid,
            str(self.version),
            self.hub,
            self.job,
            self.offer,
            permitted=self.permitted,
            suspended=self.suspended,
            deleting=self.deleting,
            finished=self.finished,
            failed=self.failed,
        )


@dataclass
class Member:
    """One cluster."""

    cluster: str
    knows_permits: bool = True
    objects: dict[str, Stored] = field(default_factory=dict)
    reserved: set[str] = field(default_factory=set)
    stopping: set[str] = field(default_factory=set)
    """Copies that its Tutti has stopped, of which something may be left."""
    pods: dict[str, int] = field(default_factory=dict)
    pods_of_job: dict[str, str] = field(default_factory=dict)
    controller_saw: set[str] = field(default_factory=set)
    """Copies that its job controller believes to be un-suspended."""
    created: int = 0

    # -- what the hub's requests do -----------------------------------------------------------------------------------

    def create(self, name: str, job: str, offer: Offer) -> None:
        if name not in self.objects:
            self.created += 1
            uid = f"{self.cluster}-{self.created}"
            self.objects[name] = Stored(uid, HUB, job, offer)
            self.pods_of_job[uid] = job

    def permit(self, name: str, offer: Offer, uid: str, version: str) -> None:
        found = self.objects.get(name)
        if found is not None and (found.uid, str(found.version)) == (uid, version):
            found.permit = permit_text(str(offer), uid)
            found.version += 1

    def revoke(self, name: str, uid: str, version: str) -> None:
        found = self.objects.get(name)
        if found is not None and (found.uid, str(found.version)) == (uid, version):
            found.permit = revoked_text(version)
            found.version += 1

    def delete(self, name: str, uid: str, version: str | None) -> None:
        found = self.objects.get(name)
        if found is not None and found.uid == uid and version in (None, str(found.version)) and not found.deleting:
            found.deleting = True
            found.version += 1

    def look(self, name: str) -> Sight:
        found = self.objects.get(name)
        shown = None if found is None else found.shown()
        return Sight(self.cluster, self.knows_permits, shown, found is not None and found.uid in self.reserved)

    # -- what it does by itself ---------------------------------------------------------------------------------------

    def moves(self) -> Iterator[tuple[str, Callable[[], None]]]:
        for name, found in self.objects.items():
            if found.hub != HUB:
                continue
            uid = found.uid
            if uid not in self.reserved and found.suspended and not found.deleting:
                yield "reserve", lambda uid=uid: self.reserved.add(uid)
            if uid in self.reserved and uid not in self.stopping and found.suspended and not found.deleting:
                if found.permitted or not self.knows_permits:
                    yield "start", lambda found=found: self._start(found)
                else:
                    yield "give back", lambda found=found: self._give_back(found)
            if not found.suspended:
                if uid in self.reserved and not found.finished and not found.deleting:
                    yield "preempt", lambda found=found: self._preempt(found)
                yield "controller looks", lambda uid=uid: self.controller_saw.add(uid)
                if not self.pods.get(uid) and not found.finished and uid in self.controller_saw:
                    yield "finish", lambda found=found: self._finish(found)
                    yield "fail", lambda found=found: self._finish(found, failed=True)
                if uid not in self.reserved and not found.finished and self.knows_permits:
                    yield "adopt again", lambda uid=uid: self.reserved.add(uid)
            if found.deleting:
                yield "gone", lambda name=name: self._gone(name)
        present = {found.uid: found for found in self.objects.values()}
        for uid in sorted(self.controller_saw):
            if uid in self.reserved and self.pods.get(uid, 0) < PODS:
                yield "pod", lambda uid=uid: self._pod(uid)
            if uid not in present or present[uid].finished or present[uid].suspended:
                yield "controller forgets", lambda uid=uid: self.controller_saw.discard(uid)
        for uid, count in self.pods.items():
            if count:
                yield "pod ends", lambda uid=uid: self._pod_ends(uid)
        for uid in sorted(self.reserved):
            stopped = uid in self.stopping and uid not in self.controller_saw
            over = uid not in present or present[uid].finished or stopped
            if over and not self.pods.get(uid):
                yield "release", lambda uid=uid: self._release(uid)

    def lose_ledger(self) -> None:
        """Its ledger is deleted by hand; its Tutti writes it again from what still runs."""
        self.reserved.clear()

    def _start(self, found: Stored) -> None:
        found.suspended = False
        found.version += 1

    def _preempt(self, found: Stored) -> None:
        self.stopping.add(found.uid)
        found.suspended = True
        found.version += 1

    def _release(self, uid: str) -> None:
        self.reserved.discard(uid)
        self.stopping.discard(uid)

    def _give_back(self, found: Stored) -> None:
        found.version += 1
        self.reserved.discard(found.uid)

    def _finish(self, found: Stored, *, failed: bool = False) -> None:
        found.finished, found.failed = True, failed
        found.version += 1

    def _gone(self, name: str) -> None:
        del self.objects[name]

    def _pod(self, uid: str) -> None:
        self.pods[uid] = self.pods.get(uid, 0) + 1

    def _pod_ends(self, uid: str) -> None:
        self.pods[uid] -= 1

    # -- what is true of it ------------------------------------------------------------------------------------------

    def running(self) -> Iterator[tuple[str, str]]:
        """(job of the hub, uid of its copy) of all that runs here, or may."""
        seen = {found.uid for found in self.objects.values() if found.hub == HUB and not found.suspended}
        seen = {uid for uid in seen if not self._over(uid)} | {uid for uid, count in self.pods.items() if count}
        for uid in sorted(seen):
            yield self.pods_of_job[uid], uid

    def _over(self, uid: str) -> bool:
        return any(found.uid == uid and found.finished for found in self.objects.values())

    def leftovers(self) -> set[str]:
        """Names of the hub's jobs of which something is left here whose copy is gone."""
        present = {found.uid for found in self.objects.values()}
        left = (self.reserved | {uid for uid, count in self.pods.items() if count}) - present
        return {self.pods_of_job[uid].rpartition("-")[0] for uid in left}
