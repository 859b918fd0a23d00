"""Groups of Kueue's: no more of their pods are let go, or have succeeded, than each of them says there are."""

from collections.abc import Mapping
from typing import Any

from webhook.core.notation import names


class CountedGroups:
    """The pods of them that were let go."""

    def __init__(self) -> None:
        self._counted: dict[str, tuple[tuple[str, str], int]] = {}
        """By uid: its group, and how many it says there are."""

    def take(self, uid: str, pod: Mapping[str, Any]) -> None:
        """Take in a pod as it is stored now."""
        self._counted.pop(uid, None)
        metadata, gates = pod["metadata"], pod["spec"].get("schedulingGates")
        count, failed = (metadata.get("annotations") or {}).get(names.KUEUE_POD_COUNT), _phase(pod) == "Failed"
        if count is not None and not gates and not metadata.get("deletionTimestamp") and not failed:
            group = metadata["namespace"], metadata["labels"][names.KUEUE_POD_GROUP]
            self._counted[uid] = (group, int(count))

    def forget(self, uid: str) -> None:
        """Forget a pod that is gone."""
        self._counted.pop(uid, None)

    def uids(self) -> list[str]:
        """Return those that are known."""
        return [*self._counted]

    def too_large(self) -> str:
        """Return which group has more than it should, empty when none has."""
        found: dict[tuple[str, str], list[int]] = {}
        for group, count in self._counted.values():
            found.setdefault(group, []).append(count)
        for (namespace, name), counts in found.items():
            if len(counts) > max(counts):
                return f"{len(counts)} pods of group {namespace}/{name} were let go, it has {max(counts)}"
        return ""


def _phase(pod: Mapping[str, Any]) -> str | None:
    phase: str | None = (pod.get("status") or {}).get("phase")
    return phase
