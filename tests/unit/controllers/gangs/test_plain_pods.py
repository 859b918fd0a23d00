"""The reconciler over a simulated cluster: plain pods of a PodGroup start, are missed and come back as one gang."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from random import Random
from typing import Any

import jsonpatch
import orjson
import pytest

from tests.unit.controllers.stage import PODS, queued_cluster, waiting_pod
from webhook.assembly.reconciler import ReconcilerParts, reconciler
from webhook.clock import LoopClock
from webhook.config import Config
from webhook.core.ledger import bounds
from webhook.core.ledger.record import Reservation
from webhook.core.notation import names
from webhook.jobs.patches.marking import gate_pod
from webhook.jobs.plain_pods.groups import gang_uid
from webhook.kube.api import MERGE_PATCH
from webhook.laboratory.simulated.cluster import SimulatedCluster

pytestmark = pytest.mark.virtual_time
CONFIG = Config(
    start={"timeout_seconds": 20, "recovery_seconds": 20, "backoff_seconds": 15, "backoff_max_seconds": 60},
    networkTiers=[{"tier": 1, "nodeLabel": "rack"}],
)
GROUPS = "/apis/{}/v1alpha1/namespaces/team-a/podgroups"
LABEL = "scheduling.x-k8s.io/pod-group"
NEW, OLD, VOLCANO = "scheduling.x-k8s.io", "scheduling.sigs.k8s.io", "scheduling.volcano.sh"


class Stage:
    """A queue of four cpu, and a leader."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self.cluster = cluster
        self.admin = cluster.api()
        self.parts: ReconcilerParts = reconciler(cluster.api(), CONFIG, identity="me", clock=LoopClock(), rng=Random(1))

    async def group(self, least: int, generation: str = NEW) -> None:
        """Create or change the PodGroup ``train``."""
        body = {"metadata": {"name": "train", "namespace": "team-a"}, "spec": {"minMember": least}}
        group = body | {"apiVersion": f"{generation}/v1alpha1", "kind": "PodGroup"}
        if (generation, "train") in await self.groups():
            path = f"{GROUPS.format(generation)}/train"
            await self.admin.request("PATCH", path, body=orjson.dumps(group), content_type=MERGE_PATCH)
        else:
            await self.cluster.create(group)

    async def groups(self) -> set[tuple[str, str]]:
        lists = {name: orjson.loads(await self.admin.request("GET", GROUPS.format(name))) for name in (NEW, OLD)}
        return {(name, item["metadata"]["name"]) for name, found in lists.items() for item in found["items"]}

    async def drop_group(self, generation: str) -> None:
        await self.admin.request("DELETE", f"{GROUPS.format(generation)}/train")

    async def create(self, *numbers: int, cpu: int = 1, fate: str = "", runtime: str = "", size: str = "") -> None:
        """Create pods as the webhook would have stored them; ``fate`` and ``runtime`` are for their kubelet.

        With ``size`` they are a group of Kueue's that has so many.
        """
        for number in numbers:
            pod = waiting_pod()
            pod["metadata"]["name"] = f"train-{number}"
            told = {"tutti.dev/simulated-fate": fate, "tutti.dev/simulated-runtime": runtime}
            pod["metadata"]["annotations"] = {key: value for key, value in told.items() if value}
            if size:
                pod["metadata"]["annotations"][names.KUEUE_POD_COUNT] = size
                pod["metadata"]["labels"][names.KUEUE_POD_GROUP] = pod["metadata"]["labels"].pop(LABEL)
            pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = str(cpu)
            await self.cluster.create(jsonpatch.apply_patch(pod, []))

    async def delete(self, number: int) -> None:
        await self.admin.request("DELETE", f"{PODS}/train-{number}")

    async def pods(self) -> dict[int, str]:
        """Return the phase of each pod by its number; ``Waiting`` behind our gate."""
        items = orjson.loads(await self.admin.request("GET", PODS))["items"]
        return {int(pod["metadata"]["name"].removeprefix("train-")): _phase(pod) for pod in items}

    def entry(self) -> Reservation | None:
        """Return what the gang holds, as the leader knows it."""
        return self.parts.view.ledger.entries.get(gang_uid("team-a", "train"))

    def why(self, group: str = "train") -> str:
        return str(self.parts.reconciler.reason(gang_uid("team-a", group)))


def _phase(pod: dict[str, Any]) -> str:
    gated = {"name": names.SCHEDULING_GATE} in (pod["spec"].get("schedulingGates") or ())
    return "Waiting" if gated else str(pod["status"]["phase"])


@asynccontextmanager
async def stage(least: int) -> AsyncIterator[Stage]:
    """Yield a stage with a leader, and the PodGroup ``train`` that needs ``least`` pods."""
    async with queued_cluster() as cluster:
        play = Stage(cluster)
        await play.group(least)
        leader = asyncio.create_task(play.parts.run())
        await asyncio.sleep(2)
        yield play
        leader.cancel()
        await asyncio.gather(leader, return_exceptions=True)


async def test_they_start_when_the_quorum_is_there_or_is_lowered_to_what_is_there() -> None:
    async with stage(4) as play:
        await play.create(0, 1, 2)
        await asyncio.sleep(3)
        assert await play.pods() == {0: "Waiting", 1: "Waiting", 2: "Waiting"}
        assert "it needs 4 pods, and 3 exist" in play.why()
        await play.group(3)
        await asyncio.sleep(3)
        assert await play.pods() == {0: "Running", 1: "Running", 2: "Running"}


async def test_a_pod_group_of_another_generation_with_the_same_name_may_go() -> None:
    """It took the other one along, and the gang waited for a PodGroup that was there."""
    async with stage(2) as play:
        await play.group(3, OLD)
        await play.create(0, 1)
        await asyncio.sleep(3)
        assert "it needs 3 pods, and 2 exist" in play.why(), "the older generation counts"
        await play.drop_group(OLD)
        await asyncio.sleep(3)
        assert await play.pods() == {0: "Running", 1: "Running"}


async def test_a_pod_group_of_volcano_says_where_pods_without_a_queue_label_wait() -> None:
    """Only ResourceQuotas bound them, whatever the queue had left."""
    group = {
        "apiVersion": f"{VOLCANO}/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": "star", "namespace": "team-a"},
    }
    pod = waiting_pod()
    pod["metadata"] |= {"labels": {}, "annotations": {f"{VOLCANO}/group-name": "star"}}
    pod["spec"] |= {"schedulingGates": [], "containers": [{"name": "main", "resources": {"requests": {"cpu": "9"}}}]}
    async with stage(1) as play:
        await play.cluster.create(jsonpatch.apply_patch(pod, gate_pod(pod, gang_uid("team-a", "star"))))
        await play.cluster.create(group | {"spec": {"minMember": 1, "queue": "research"}})
        await asyncio.sleep(3)
        assert "asks for 9 cpu; queue research has 4" in play.why("star")
        body, path = orjson.dumps({"spec": {"queue": "elsewhere"}}), "/apis/{}/v1beta1/namespaces/team-a/podgroups/star"
        await play.admin.request("PATCH", path.format(VOLCANO), body=body, content_type=MERGE_PATCH)
        await asyncio.sleep(3)
        assert "elsewhere" in play.why("star")


async def test_pods_that_join_a_pod_group_of_volcano_start_on_nodes_of_one_rack() -> None:
    """By quota and nodes alone each would go to another. The PodGroup says it after they came."""
    spec = {"minMember": 2, "networkTopology": {"mode": "hard", "highestTierAllowed": 1}}
    group = {
        "apiVersion": f"{VOLCANO}/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": "star", "namespace": "team-a"},
        "spec": {"minMember": 3, "queue": "research"},
    }
    async with stage(1) as play:
        await play.admin.request("DELETE", "/api/v1/nodes/node")
        for name in ("r-1", "s-1"):
            await play.cluster.add_node(name, cpu="1", labels={"rack": name[0]})
        await play.cluster.create(group)
        for number in range(2):
            pod = waiting_pod()
            pod["metadata"] |= {
                "name": f"star-{number}",
                "labels": {},
                "annotations": {f"{VOLCANO}/group-name": "star", "tutti.dev/simulated-runtime": "60s"},
            }
            pod["spec"]["schedulingGates"] = []
            await play.cluster.create(jsonpatch.apply_patch(pod, gate_pod(pod, gang_uid("team-a", "star"))))
        await asyncio.sleep(3)
        path, body = f"/apis/{VOLCANO}/v1beta1/namespaces/team-a/podgroups/star", orjson.dumps({"spec": spec})
        await play.admin.request("PATCH", path, body=body, content_type=MERGE_PATCH)
        await asyncio.sleep(5)
        assert "within one rack; the largest, r, holds 1 when nothing else runs there, 1 too few" in play.why("star")
        await play.cluster.add_node("s-2", cpu="1", labels={"rack": "s"})
        await asyncio.sleep(5)
        items = orjson.loads(await play.admin.request("GET", PODS))["items"]
        assert {pod["spec"].get("nodeName") for pod in items} == {"s-1", "s-2"}
        assert [pod["spec"]["nodeSelector"]["rack"] for pod in items] == ["s", "s"]


async def test_who_may_not_grow_because_its_reservation_would_be_too_long_is_told_so_and_runs_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Pods of another size are another pod set of the entry."""
    async with stage(1) as play:
        await play.create(0)
        await asyncio.sleep(3)
        entry = play.entry()
        assert entry is not None
        most = bounds.entry_bytes(entry) + 20
        monkeypatch.setattr(bounds, "STORED_BYTES_MAX", most)
        await play.create(1, cpu=2)
        await asyncio.sleep(8)
        assert await play.pods() == {0: "Running", 1: "Waiting"}
        why = play.why()
        assert "with them its reservation would take" in why
        assert f"one job takes at most {most}" in why
        events = orjson.loads(await play.admin.request("GET", "/apis/events.k8s.io/v1/namespaces/team-a/events"))
        (told,) = (event["note"] for event in events["items"] if event["reason"] == "GrowthWaits")
        assert "pods that should join it wait: ReservationTooLarge: with them its reservation would take" in told
        assert "create them as a gang of their own" in told
        await play.delete(1)
        await play.create(2)
        await asyncio.sleep(8)
        assert await play.pods() == {0: "Running", 2: "Running"}
        assert "with them" not in play.why()


async def test_those_that_are_left_of_a_gang_are_stopped_when_nobody_replaces_what_was_lost() -> None:
    async with stage(3) as play:
        await play.create(0, 1)
        await play.create(2, runtime="8s", fate="fails")
        await asyncio.sleep(15)
        assert await play.pods() == {0: "Running", 1: "Running", 2: "Failed"}
        await play.create(3)
        await asyncio.sleep(40)
        assert await play.pods() == {0: "Running", 1: "Running", 2: "Failed", 3: "Running"}, "it took its place"
        await play.delete(3)
        await asyncio.sleep(15)
        assert play.entry() is not None
        await asyncio.sleep(15)
        assert await play.pods() == {2: "Failed"}
        assert play.entry() is None


async def test_a_pod_of_another_shape_follows_when_there_is_room_for_it() -> None:
    """Created first, it would have been part of the start; created last, it waited for ever and nobody said why."""
    async with stage(2) as play:
        await play.create(0, 1)
        await asyncio.sleep(3)
        await play.create(2, cpu=3)
        await asyncio.sleep(3)
        assert await play.pods() == {0: "Running", 1: "Running", 2: "Waiting"}
        await play.delete(2)
        await play.create(3, cpu=2)
        await asyncio.sleep(3)
        assert await play.pods() == {0: "Running", 1: "Running", 3: "Running"}
        entry = play.entry()
        assert entry is not None
        assert sorted(entry.counts.values()) == [1, 2]
        assert [pod_set.flavors for pod_set in entry.pod_sets] == [{"cpu": "any"}] * 2


async def test_a_group_of_kueues_starts_whole_and_who_replaces_a_failed_pod_takes_its_place() -> None:
    async with stage(1) as play:
        await play.create(0, 1, size="3", runtime="20s")
        await asyncio.sleep(3)
        assert await play.pods() == {0: "Waiting", 1: "Waiting"}
        assert "it needs 3 pods, and 2 exist" in play.why(), "no PodGroup of that name is asked"
        await play.create(2, size="3", runtime="6s", fate="fails")
        await asyncio.sleep(2)
        await play.create(3, size="3", runtime="20s")
        await asyncio.sleep(3)
        assert await play.pods() == {0: "Running", 1: "Running", 2: "Running", 3: "Waiting"}, "it is one too many"
        await asyncio.sleep(6)
        assert await play.pods() == {0: "Running", 1: "Running", 2: "Failed", 3: "Running"}
        entry = play.entry()
        assert entry is not None
        assert sum(entry.counts.values()) == 3
        await asyncio.sleep(30)
        assert await play.pods() == {0: "Succeeded", 1: "Succeeded", 2: "Failed", 3: "Succeeded"}
        assert play.entry() is None


async def test_a_succeeded_pod_of_a_group_of_kueues_leaves_its_place_to_nobody() -> None:
    async with stage(1) as play:
        await play.create(0, size="2", runtime="5s")
        await play.create(1, size="2", runtime="30s")
        await asyncio.sleep(3)
        await play.create(2, size="2")
        await asyncio.sleep(15)
        assert await play.pods() == {0: "Succeeded", 1: "Running", 2: "Waiting"}
        await asyncio.sleep(25)
        assert await play.pods() == {0: "Succeeded", 1: "Succeeded", 2: "Waiting"}
        assert play.entry() is None
        assert "all 2 pods of the group have succeeded" in play.why()
        await play.delete(0)
        await asyncio.sleep(3)
        assert await play.pods() == {1: "Succeeded", 2: "Running"}


async def test_when_a_group_of_kueues_has_failed_in_part_only_that_part_is_made_again() -> None:
    async with stage(1) as play:
        await play.create(0, size="3", runtime="5s")
        await play.create(1, 2, size="3", runtime="5s", fate="fails")
        await asyncio.sleep(12)
        assert await play.pods() == {0: "Succeeded", 1: "Failed", 2: "Failed"}
        assert play.entry() is None, "a failed group keeps no quota"
        await play.create(3, size="3", runtime="5s")
        await asyncio.sleep(3)
        assert "it needs 2 pods, and 1 exists" in play.why()
        await play.create(4, size="3", runtime="5s")
        await asyncio.sleep(12)
        assert await play.pods() == {0: "Succeeded", 1: "Failed", 2: "Failed", 3: "Succeeded", 4: "Succeeded"}


async def starts(play: Stage, seconds: int, *, keep: bool) -> list[float]:
    """Return when the pods of a gang that cannot come up are let go; whoever keeps them makes them again at once."""
    found: list[float] = []
    for _ in range(seconds * 5):
        await asyncio.sleep(0.2)
        there = await play.pods()
        entry = play.entry()
        if entry is not None and entry.since_seconds not in found:
            found.append(entry.since_seconds)
        if keep and not there:
            await play.create(0, 1, fate="never-starts")
    return [later - earlier for earlier, later in pairwise(found)]


async def test_pods_that_are_made_again_after_a_failed_start_wait_out_a_growing_back_off() -> None:
    """All of them had been deleted, and nothing else knew how often they had been tried: they started at once."""
    async with stage(2) as play:
        await play.create(0, 1, fate="never-starts")
        assert [round(gap, -1) for gap in await starts(play, 220, keep=True)] == [40, 50, 80]


async def test_pods_that_are_made_again_while_those_that_were_stopped_still_end_keep_their_gangs_back_off() -> None:
    async with stage(2) as play:
        await play.create(0, 1, fate="never-starts")
        await asyncio.sleep(15)
        while (entry := play.entry()) is None or entry.stopping is None:
            await asyncio.sleep(0.02)
        await play.create(2, 3)
        await asyncio.sleep(12)
        assert await play.pods() == {2: "Waiting", 3: "Waiting"}
        await asyncio.sleep(10)
        assert await play.pods() == {2: "Running", 3: "Running"}


async def test_pods_that_are_made_again_long_after_their_gang_was_stopped_are_a_new_one() -> None:
    async with stage(2) as play:
        await play.create(0, 1, fate="never-starts")
        await asyncio.sleep(30)
        assert await play.pods() == {}
        await asyncio.sleep(700)
        await play.create(2, 3)
        await asyncio.sleep(3)
        assert await play.pods() == {2: "Running", 3: "Running"}
