"""Pods that run with a GPU each, whatever their labels say: those of adopted jobs bear none of ours."""

from collections.abc import Container, Iterator
from typing import Final

from webhook.laboratory.simulated.controllers.pods import PODS, controller_of, has_ended, is_terminating
from webhook.laboratory.simulated.objects.store import Event, Store

GPU: Final = "nvidia.com/gpu"


class GpuPods:
    """Those of one world."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._unknown: set[str] = set()
        """Uids of those whose job was deleted from above them before anybody of ours had adopted it: nothing tells of
        them that they ever had one.
        """

    def take(self, event: Event, reserved: Container[str]) -> None:
        """Take note of what became of a pod while these gangs were ``reserved``."""
        before = None if event.previous is None else controller_of(event.previous)
        if before is not None and before["uid"] not in reserved and controller_of(event.current) is None:
            self._unknown.add(event.current.uid)

    def live(self) -> Iterator[str]:
        """Yield the names of those that run, and are known of."""
        for pod in self._store.items(PODS):
            requests = (pod.object["spec"]["containers"][0].get("resources") or {}).get("requests", {})
            if GPU in requests and not has_ended(pod) and not is_terminating(pod) and pod.uid not in self._unknown:
                yield pod.object["metadata"]["name"]
