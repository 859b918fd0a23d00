"""Which users write for which job kind, worked out once from the table of kinds.

Who may create a gang's pods is settled by the authenticated user, never by ownerReferences or labels alone: those are
writable by anybody.
"""

from collections.abc import Mapping

from webhook.jobs.kinds.kind import JobKind


class Creators:
    """The users that work for job kinds."""

    def __init__(self, kinds: Mapping[str, JobKind]) -> None:
        self.controllers: frozenset[str] = frozenset().union(*(kind.controller_users for kind in kinds.values()))
        """Every username under which some kind's controller works."""
        self._of_kind = {key: _users_of(key, kinds) for key in kinds}
        self._by_pods = frozenset(key for key, kind in kinds.items() if kind.pods_make_pods)
        self._below = {key: _kinds_below(key, kinds) for key in kinds}

    def of(self, kind: str) -> frozenset[str]:
        """Return who may create pods for a gang of ``kind``: its controller, its children's and others; else nobody."""
        return self._of_kind.get(kind, frozenset())

    def makes_by_pods(self, kind: str) -> bool:
        """Return whether pods of a gang of ``kind`` make further ones of it."""
        return kind in self._by_pods

    def below(self, kind: str) -> frozenset[str]:
        """Return the kinds of objects that may stand between a gang of ``kind`` and its pods."""
        return self._below.get(kind, frozenset())


def _users_of(kind: str, kinds: Mapping[str, JobKind]) -> frozenset[str]:
    users: set[str] = set()
    for key in {kind} | _kinds_below(kind, kinds):
        entry = kinds.get(key)
        users |= frozenset() if entry is None else entry.controller_users | entry.pod_users
    return frozenset(users)


def _kinds_below(kind: str, kinds: Mapping[str, JobKind]) -> frozenset[str]:
    found: set[str] = set()
    waiting = [kind]
    while waiting:
        entry = kinds.get(waiting.pop())
        if entry is not None:
            waiting.extend(entry.child_kinds - found)
            found |= entry.child_kinds | entry.pod_owners
    return frozenset(found)
