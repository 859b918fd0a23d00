"""The simulated cluster answers as the real one does: the same scripts, drawn from seeds, run against both."""

import asyncio
import contextlib
import uuid
from random import Random

import orjson
import pytest

from tests.e2e.agreement import DEFINITION, KINDS, Side, Step, differences, same_words, script
from tests.e2e.agreement_stories import stories
from tests.e2e.conftest import AnyCluster, create_namespace
from tests.e2e.kubectl import Kubectl, KubectlError, wait_until
from webhook.clock import SystemClock
from webhook.kube.connecting import connect
from webhook.laboratory.simulated.cluster import SimulatedCluster

SEEDS = range(12)
STEPS = 50
SETTLE_SECONDS = 5.0


@pytest.mark.parametrize("seed", SEEDS)
async def test_every_answer_to_a_script_is_the_same(cluster: AnyCluster, kubectl: Kubectl, seed: int) -> None:
    namespace = f"agree-{uuid.uuid4().hex[:8]}"
    create_namespace(kubectl, namespace)
    kubectl.apply(DEFINITION)
    kubectl("wait", "--for=condition=Established", "crd/widgets.agreement.example.com")
    wait_until(lambda: kubectl("get", "widgets.agreement.example.com", "-o", "name") == "", what="they are served")
    real = await connect(cluster.kubeconfig)
    try:
        async with like(kubectl, seed, namespace) as simulated:
            await simulated.create(DEFINITION)
            sides = Side(simulated.api(), namespace), Side(real, namespace)
            for side in sides:
                await side.create_quota(pods=2 if seed % 2 else 100)
            for number, step in enumerate(script(seed, STEPS)):
                mine, theirs = [await side.answer(step) for side in sides]
                where = f"step {number}: {step}"
                assert mine[:2] == theirs[:2], where
                assert same_words(mine[2], theirs[2]), f"{where}\n{mine[2]}\n{theirs[2]}"
                assert list(differences(mine[3], theirs[3])) == [], where
                await _settle(sides, step)
    finally:
        await real.close()
        _remove(kubectl, namespace)


def like(kubectl: Kubectl, seed: int, namespace: str) -> SimulatedCluster:
    """Return a simulated cluster of the release of the real one."""
    minor = orjson.loads(kubectl("get", "--raw", "/version"))["minor"].rstrip("+")
    return SimulatedCluster(Random(seed), clock=SystemClock(), namespaces=[namespace], release=int(minor))


def _remove(kubectl: Kubectl, namespace: str) -> None:
    """Delete a namespace with the objects whose finalizers, which a script put there, would hold it back for ever."""
    kubectl.delete("namespace", namespace)
    here = kubectl.in_namespace(namespace)
    for kind in KINDS:
        for item in here.items(kind):
            if item["metadata"].get("finalizers"):
                with contextlib.suppress(KubectlError):  # gone meanwhile
                    here.patch(kind, item["metadata"]["name"], {"metadata": {"finalizers": None}})


async def _settle(sides: tuple[Side, Side], step: Step) -> None:
    """Wait until both sides' controllers have done what the step asks of them."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + SETTLE_SECONDS
    while loop.time() < deadline:
        if all([await _at_rest(side, step) for side in sides]):
            return
        await asyncio.sleep(0.02)


async def _at_rest(side: Side, step: Step) -> bool:
    path = KINDS[step.kind].format(side.namespace)
    if step.kind == "pods" and not await side.quota_is_settled():
        return False
    for item in orjson.loads(await side.api.request("GET", path))["items"]:
        metadata, conditions = item["metadata"], (item.get("status") or {}).get("conditions") or ()
        if "deletionTimestamp" in metadata:
            if "foregroundDeletion" in (metadata.get("finalizers") or ()):
                return False
        elif step.kind == "jobs" and not any(condition["type"] == "Suspended" for condition in conditions):
            return False
    return True


async def test_jobs_job_sets_and_training_jobs_come_to_the_same_rest(cluster: AnyCluster, kubectl: Kubectl) -> None:
    namespace = f"agree-{uuid.uuid4().hex[:8]}"
    create_namespace(kubectl, namespace)
    real = await connect(cluster.kubeconfig)
    try:
        async with like(kubectl, 1, namespace) as simulated:
            await simulated.add_node("n1", gpu="8")
            mine, theirs = await asyncio.gather(stories(simulated.api(), namespace), stories(real, namespace))
    finally:
        await real.close()
        kubectl.delete("namespace", namespace)
    assert mine == theirs
