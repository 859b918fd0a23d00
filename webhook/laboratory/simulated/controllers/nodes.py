"""Scheduler and kubelets: pods are bound where they fit, run for as long as they say, and stop when told.

A pod runs until it is deleted, or for the time in its annotation ``tutti.dev/simulated-runtime`` (``5s``, ``500ms``,
``1m30s``; of several, as in ``5s 20s``, its completion index says which) and then succeeds. Its annotation
``tutti.dev/simulated-fate`` changes that: ``fails`` ends it as Failed, ``odd-indexes-fail`` does if its completion
index is odd, and ``never-starts`` leaves it Pending on its node as a missing image does. A node with the annotation
``tutti.dev/simulated-fate: fails`` ends all its pods so.
"""

import re
from random import Random
from typing import Any, Final

from webhook.core.model.gang import PodPrice
from webhook.core.notation import quantity
from webhook.laboratory.simulated.controllers import pods
from webhook.laboratory.simulated.controllers.base import Controller, Pace
from webhook.laboratory.simulated.controllers.indexes import indexes_of
from webhook.laboratory.simulated.objects.conditions import with_condition
from webhook.laboratory.simulated.objects.store import Event, Stored
from webhook.laboratory.simulated.requests.identity import SCHEDULER, Call, kubelet
from webhook.laboratory.simulated.requests.refusals import Json, Refused
from webhook.laboratory.simulated.server import SimulatedServer

NODES: Final = ("", "nodes")
HOSTNAME: Final = "kubernetes.io/hostname"
RUNTIME: Final = "tutti.dev/simulated-runtime"
FATE: Final = "tutti.dev/simulated-fate"
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")
_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_ROUND: Final = "round"


def parse_duration(text: str) -> float | None:
    """Return seconds of a Go duration such as ``1m30s``, None when it is none."""
    parts = _DURATION.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return None
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


class Scheduler(Controller):
    """Binds pods without a node to the first node, by name, that has room, those first that it prefers; highest
    priority first.
    """

    workers = 1

    def __init__(self, server: SimulatedServer, rng: Random, pace: Pace) -> None:
        super().__init__(server, SCHEDULER, rng, pace)
        self._pods = server.registry.of("pods")
        self._pending: dict[tuple[str, str], None] = {}
        self._prices: dict[str, PodPrice] = {}
        self._used: dict[str, dict[str, int]] = {}
        self.store.subscribe(self._pod_changed, pods.PODS)
        self.store.subscribe(lambda event: self.enqueue(_ROUND), NODES)

    def _pod_changed(self, event: Event) -> None:
        self._account(event.previous, -1)
        gone = event.type == "DELETED"
        if not gone:
            self._account(event.current, 1)
        if not gone and not event.current.object["spec"].get("nodeName") and pods.is_active(event.current):
            self._pending[event.current.key] = None
            self.enqueue(_ROUND)
            return
        self._pending.pop(event.current.key, None)
        if gone:
            self._prices.pop(event.current.uid, None)
        if self._pending and (gone or pods.has_ended(event.current)):
            self.enqueue(_ROUND)

    def _account(self, pod: Stored | None, sign: int) -> None:
        if pod is None or pods.has_ended(pod) or not (node := pod.object["spec"].get("nodeName")):
            return
        used = self._used.setdefault(node, {})
        for name, amount in self._requests(pod).items():
            used[name] = used.get(name, 0) + sign * amount

    def _requests(self, pod: Stored) -> dict[str, int]:
        price = self._prices.get(pod.uid)
        if price is None:
            from webhook.jobs.pricing.pod_requests import price as price_of  # noqa: PLC0415 - see simulated.quota

            price = self._prices[pod.uid] = price_of(pod.object["spec"])
        return {**price.requests, "pods": quantity.MILLI}

    async def reconcile(self, key: Any) -> None:
        """Try to place every pending pod."""
        pending = [pod for pod in (self.store.get(pods.PODS, *k) for k in self._pending) if pod is not None]
        for pod in sorted(pending, key=lambda p: -int(p.object["spec"].get("priority") or 0)):
            if self.store.get(pods.PODS, *pod.key) is pod:
                await self._place(pod)

    async def _place(self, pod: Stored) -> None:
        spec = pod.object["spec"]
        if spec.get("schedulingGates"):
            await self._say(pod, "SchedulingGated", "Scheduling is blocked due to non-empty scheduling gates")
            return
        nodes = sorted(self.store.items(NODES, ""), key=lambda node: not _prefers(spec, node.object))
        for node in nodes:
            if self._fits(pod, node.object):
                try:
                    await self.server.bind(*pod.key, node.key[1], self.call())
                except Refused:
                    self.enqueue_after(_ROUND, self.pace.backoff_seconds)
                return
        await self._say(pod, "Unschedulable", f"0/{len(nodes)} nodes are available: no node has room and fits.")

    async def _say(self, pod: Stored, reason: str, message: str) -> None:
        now = self.server.timestamp()
        status = with_condition(pod.object["status"], "PodScheduled", "False", now, reason, message)
        if status != pod.object["status"]:
            await self.server.update(
                self._pods, *pod.key, lambda stored: {**stored.object, "status": status}, self.call(), "status"
            )

    def _fits(self, pod: Stored, node: Json) -> bool:
        spec = pod.object["spec"]
        labels = node["metadata"].get("labels") or {}
        if node["spec"].get("unschedulable") or any(
            labels.get(k) != v for k, v in (spec.get("nodeSelector") or {}).items()
        ):
            return False
        if not all(_tolerated(taint, spec.get("tolerations") or ()) for taint in node["spec"].get("taints") or ()):
            return False
        room = node["status"].get("allocatable") or {}
        used = self._used.get(node["metadata"]["name"], {})
        for name, amount in self._requests(pod).items():
            if amount and used.get(name, 0) + amount > (quantity.parse(room[name]) if name in room else 0):
                return False
        return True


def _prefers(spec: Json, node: Json) -> bool:
    """Return whether a pod prefers a node by its name, the one preference that is modelled."""
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    terms = affinity.get("preferredDuringSchedulingIgnoredDuringExecution") or ()
    wishes = (each for term in terms for each in term["preference"].get("matchExpressions") or ())
    return any(each["key"] == HOSTNAME and node["metadata"]["name"] in each.get("values", ()) for each in wishes)


def _tolerated(taint: Json, tolerations: Any) -> bool:
    if taint.get("effect") == "PreferNoSchedule":
        return True
    for toleration in tolerations:
        if toleration.get("effect") not in (None, "", taint.get("effect")):
            continue
        if toleration.get("operator") == "Exists":
            if toleration.get("key") in (None, "", taint["key"]):
                return True
        elif toleration.get("key") == taint["key"] and toleration.get("value", "") == taint.get("value", ""):
            return True
    return False


class Kubelet(Controller):
    """Starts, ends and stops the pods of every node."""

    def __init__(self, server: SimulatedServer, rng: Random, pace: Pace) -> None:
        super().__init__(server, kubelet("simulated"), rng, pace)
        self._pods = server.registry.of("pods")
        self.store.subscribe(self._pod_changed, pods.PODS)

    def _pod_changed(self, event: Event) -> None:
        pod = event.current
        if event.type == "DELETED" or not pod.object["spec"].get("nodeName"):
            return
        before = event.previous
        key = (*pod.key, pod.uid)
        if pods.is_terminating(pod):
            if before is None or not pods.is_terminating(before):
                grace = pod.object["metadata"].get("deletionGracePeriodSeconds", 0)
                self.enqueue_after(("stop", *key), self.delay(min(self.pace.pod_stop_seconds, grace)))
        elif before is None or not before.object["spec"].get("nodeName"):
            if _annotation(pod, FATE) != "never-starts":
                self.enqueue_after(("start", *key), self.delay(self.pace.pod_start_seconds))
        elif pods.phase(pod) == "Running" and pods.phase(before) != "Running":
            runtime = _runtime_seconds(pod)
            if runtime is not None:
                self.enqueue_after(("end", *key), runtime)

    def begin_again(self) -> None:
        """Go on with every pod from where it is stored to be."""
        super().begin_again()
        for pod in self.store.items(pods.PODS):
            if not pod.object["spec"].get("nodeName") or pods.has_ended(pod):
                continue
            key = (*pod.key, pod.uid)
            if pods.is_terminating(pod):
                self.enqueue_after(("stop", *key), self.delay(self.pace.pod_stop_seconds))
            elif pods.phase(pod) == "Running":
                runtime = _runtime_seconds(pod)
                if runtime is not None:
                    self.enqueue_after(("end", *key), runtime)
            elif _annotation(pod, FATE) != "never-starts":
                self.enqueue_after(("start", *key), self.delay(self.pace.pod_start_seconds))

    async def reconcile(self, key: tuple[str, str, str, str]) -> None:
        """Take the next step in one pod's life."""
        step, namespace, name, uid = key
        pod = self.store.get(pods.PODS, namespace, name)
        if pod is None or pod.uid != uid:
            return
        call = Call(kubelet(pod.object["spec"]["nodeName"]))
        if step == "stop":
            if not pods.has_ended(pod):
                await self._write(pod, _ended(pod, "Failed", self.server.timestamp()), call)
            await self.server.delete(self._pods, namespace, name, {"gracePeriodSeconds": 0}, call)
        elif pods.is_terminating(pod) or pods.has_ended(pod):
            return
        elif step == "start" and pods.phase(pod) == "Pending":
            await self._write(pod, _running(pod, self.server.timestamp()), call)
        elif step == "end":
            node = self.store.get(NODES, "", str(pod.object["spec"].get("nodeName")))
            fails = "fails" in (_annotation(pod, FATE), "" if node is None else _annotation(node, FATE))
            fails |= _annotation(pod, FATE) == "odd-indexes-fail" and any(i % 2 for i in indexes_of((pod,)))
            phase = "Failed" if fails else "Succeeded"
            await self._write(pod, _ended(pod, phase, self.server.timestamp()), call)

    async def _write(self, pod: Stored, status: Json, call: Call) -> None:
        await self.server.update(self._pods, *pod.key, lambda s: {**s.object, "status": status}, call, "status")


def _annotation(item: Stored, key: str) -> str:
    return str((item.object["metadata"].get("annotations") or {}).get(key, ""))


def _runtime_seconds(pod: Stored) -> float | None:
    times = _annotation(pod, RUNTIME).split() or [""]
    return parse_duration(times[max(indexes_of((pod,)), default=0) % len(times)])


def _running(pod: Stored, now: str) -> Json:
    status = {**pod.object["status"], "phase": "Running", "startTime": now, "hostIP": "127.0.0.1", "podIP": "127.0.0.1"}
    for condition in ("Initialized", "ContainersReady", "Ready"):
        status = with_condition(status, condition, "True", now)
    state = {"running": {"startedAt": now}}
    return {**status, "containerStatuses": [_container(c, state, ready=True) for c in pod.object["spec"]["containers"]]}


def _ended(pod: Stored, phase: str, now: str) -> Json:
    status = {**pod.object["status"], "phase": phase}
    for condition in ("ContainersReady", "Ready"):
        status = with_condition(status, condition, "False", now, f"Pod{phase}" if phase == "Failed" else "PodCompleted")
    reason, code = ("Completed", 0) if phase == "Succeeded" else ("Error", 1)
    started = status.get("startTime", now)
    state = {"terminated": {"exitCode": code, "reason": reason, "startedAt": started, "finishedAt": now}}
    return {
        **status,
        "containerStatuses": [_container(c, state, ready=False) for c in pod.object["spec"]["containers"]],
    }


def _container(container: Json, state: Json, *, ready: bool) -> Json:
    image = container.get("image", "")
    return {
        "name": container["name"],
        "image": image,
        "imageID": image,
        "ready": ready,
        "restartCount": 0,
        "started": ready,
        "state": state,
    }
