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

    def of(self, kind: str) -> frozenset[str]:
        """Return who may create pods for a gang of ``kind``: its controller, its children's and others; else nobody."""
        return self._of_kind.get(kind, frozenset())


def _users_of(kind: str, kinds: Mapping[str, JobKind]) -> frozenset[str]:
    users: set[str] = set()
    waiting, seen = [kind], set()
    while waiting:
        key = waiting.pop()
        entry = kinds.get(key)
        if entry is not None and key not in seen:
            seen.add(key)
            users |= entry.controller_users | entry.pod_users
            waiting.extend(entry.child_kinds)
    return frozenset(users)
