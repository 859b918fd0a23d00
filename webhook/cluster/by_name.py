"""Which pods and objects only a name shows to be of a gang whose pods bear no label of ours.

Those are gangs that ran before Tutti came, and Workflows. Most controllers write the name of the owner on what they
make, that of a Job its uid, and this stays when the owner is deleted with ``--cascade=orphan`` while nobody looks, or
while a process that has just begun to look still sees the owner, and nothing that it owns. Anybody may write such a
name, and keep what their own gang holds by it, as they could by letting it run on.
"""

from collections.abc import Iterable, Iterator

from webhook.core.ledger.record import Reservation
from webhook.jobs.reading.made_for import names_of
from webhook.jobs.reading.record import JobRecord


class ByName:
    """Pods and objects without an owner by the names that they bear, and the gangs that have them."""

    def __init__(self) -> None:
        self._named: dict[str, dict[str, None]] = {}
        """Name to what bears it."""
        self._names: dict[str, tuple[str, ...]] = {}
        """The same the other way round."""
        self._gangs: dict[str, dict[str, None]] = {}
        """Name to the gangs with a reservation that have it."""

    def put(self, uid: str, names: tuple[str, ...]) -> None:
        """Take in the names that a pod, or an object, bears."""
        if self._names.get(uid, ()) == names:
            return
        self.drop(uid)
        if names:
            self._names[uid] = names
        for name in names:
            self._named.setdefault(name, {})[uid] = None

    def drop(self, uid: str) -> None:
        """Forget a pod or an object."""
        for name in self._names.pop(uid, ()):
            _discard(self._named, name, uid)

    def put_gang(self, entry: Reservation) -> None:
        """Take in the reservation of a gang."""
        for name in _names(entry) if is_unlabelled(entry) else ():
            self._gangs.setdefault(name, {})[entry.uid] = None

    def drop_gang(self, entry: Reservation) -> None:
        """Forget it."""
        for name in _names(entry) if is_unlabelled(entry) else ():
            _discard(self._gangs, name, entry.uid)

    def forget_gangs(self) -> None:
        """Forget all of them."""
        self._gangs.clear()

    def of(self, gang: Reservation | JobRecord) -> Iterator[str]:
        """Yield what bears a name of a gang."""
        for name in _names(gang):
            yield from self._named.get(name, ())

    def gangs(self, names: Iterable[str]) -> Iterator[str]:
        """Yield the gangs with a reservation that have any of these names."""
        for name in names:
            yield from self._gangs.get(name, ())

    def gang_of(self, uid: str) -> str:
        """Return such a gang by the names that a pod or an object bears; empty for none."""
        return next(self.gangs(self._names.get(uid, ())), "")


def is_unlabelled(entry: Reservation) -> bool:
    """Return whether pods of a gang bear no label of ours."""
    return entry.adopted or entry.loose_pods


def _names(gang: Reservation | JobRecord) -> tuple[str, ...]:
    return names_of(gang.kind, gang.namespace, gang.name, gang.uid)


def _discard(table: dict[str, dict[str, None]], name: str, uid: str) -> None:
    found = table.get(name, {})
    found.pop(uid, None)
    if not found:
        table.pop(name, None)
