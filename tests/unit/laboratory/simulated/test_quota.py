"""ResourceQuota, LimitRange, priority and overhead: what happens to a pod on its way in."""

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.laboratory.simulated.clients import PODS, Client, config_map, pod, quota
from webhook import errors
from webhook.laboratory.simulated.cluster import SimulatedCluster

pytestmark = pytest.mark.virtual_time

QUOTAS = "/api/v1/namespaces/team-a/resourcequotas"


async def test_a_pod_beyond_the_quota_is_refused_with_the_numbers(client: Client) -> None:
    await client.post(QUOTAS, quota("gpus", requests__gpu="3", pods="10"))
    await client.post(PODS, pod("a", gpus=2))
    with pytest.raises(errors.Forbidden) as caught:
        await client.post(PODS, pod("b", gpus=2))
    assert caught.value.message == (
        'pods "b" is forbidden: exceeded quota: gpus, requested: requests.nvidia.com/gpu=2, '
        "used: requests.nvidia.com/gpu=2, limited: requests.nvidia.com/gpu=3"
    )


async def test_ended_pods_do_not_count_and_terminating_ones_do(cluster: SimulatedCluster, client: Client) -> None:
    await cluster.add_node("n1", gpu="8")
    await client.post(QUOTAS, quota("one", pods="1"))
    short = pod("a")
    short["metadata"]["annotations"] = {"tutti.dev/simulated-runtime": "2s"}
    await client.post(PODS, short)
    await asyncio.sleep(5)
    await client.post(PODS, pod("b"))
    await asyncio.sleep(5)
    await client.delete(f"{PODS}/b")
    with pytest.raises(errors.Forbidden, match="exceeded quota: one"):
        await client.post(PODS, pod("c"))
    await asyncio.sleep(5)
    await client.post(PODS, pod("c"))


async def test_a_container_must_state_what_the_quota_limits_unless_the_pod_states_anything(client: Client) -> None:
    await client.post(QUOTAS, quota("cpu", limits__cpu="10"))
    with pytest.raises(errors.Forbidden, match=r"failed quota: cpu: must specify limits\.cpu for: main"):
        await client.post(PODS, pod("a"))
    await client.post(PODS, pod("b", resources={"requests": {"memory": "1Gi"}}))


async def test_scopes_choose_which_pods_a_quota_counts(client: Client) -> None:
    scoped = quota("deadlines", pods="1")
    scoped["spec"]["scopes"] = ["Terminating"]
    await client.post(QUOTAS, scoped)
    for name in ("a", "b"):
        await client.post(PODS, pod(name))
    await client.post(PODS, pod("c", activeDeadlineSeconds=60))
    with pytest.raises(errors.Forbidden, match="exceeded quota: deadlines"):
        await client.post(PODS, pod("d", activeDeadlineSeconds=60))


async def test_a_priority_class_scope_counts_that_class_only(client: Client) -> None:
    classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
    high = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 7}
    await client.post(classes, high)
    scoped = quota("high", pods="1")
    expression = {"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}
    scoped["spec"]["scopeSelector"] = {"matchExpressions": [expression]}
    await client.post(QUOTAS, scoped)
    made = await client.post(PODS, pod("a", priorityClassName="high"))
    assert made["spec"]["priority"] == 7
    await client.post(PODS, pod("b"))
    with pytest.raises(errors.Forbidden, match="exceeded quota: high"):
        await client.post(PODS, pod("c", priorityClassName="high"))


async def test_an_unknown_priority_class_is_refused(client: Client) -> None:
    with pytest.raises(errors.Forbidden, match="no PriorityClass with name gold was found"):
        await client.post(PODS, pod("a", priorityClassName="gold"))


async def test_objects_are_counted_by_kind(client: Client) -> None:
    limited = quota("maps", pods="10")
    limited["spec"]["hard"]["count/configmaps"] = "1"
    await client.post(QUOTAS, limited)
    path = "/api/v1/namespaces/team-a/configmaps"
    await client.post(path, config_map("a"))
    with pytest.raises(errors.Forbidden, match=r"requested: count/configmaps=1, used: count/configmaps=1"):
        await client.post(path, config_map("b"))


async def test_the_status_follows_some_time_after(client: Client) -> None:
    await client.post(QUOTAS, quota("gpus", requests__gpu="8", pods="5"))
    await client.post(PODS, pod("a", gpus=3))
    await asyncio.sleep(1)
    status = (await client.get(f"{QUOTAS}/gpus"))["status"]
    assert status["hard"] == {"requests.nvidia.com/gpu": "8", "pods": "5"}
    assert status["used"] == {"requests.nvidia.com/gpu": "3", "pods": "1"}


async def test_a_limit_range_completes_and_bounds_containers(client: Client) -> None:
    limit = {"type": "Container", "default": {"cpu": "2"}, "defaultRequest": {"cpu": "1"}, "max": {"cpu": "4"}}
    body = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "l"}, "spec": {"limits": [limit]}}
    await client.post("/api/v1/namespaces/team-a/limitranges", body)
    bare = pod("a")
    bare["spec"]["containers"] = [{"name": "main", "image": "x"}]
    made = await client.post(PODS, bare)
    assert made["spec"]["containers"][0]["resources"] == {"limits": {"cpu": "2"}, "requests": {"cpu": "1"}}
    bare["metadata"]["name"] = "b"
    bare["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "5"}}
    with pytest.raises(errors.Forbidden, match="maximum cpu usage per Container is 4"):
        await client.post(PODS, bare)


async def test_the_overhead_of_a_runtime_class_is_written_into_the_pod(client: Client) -> None:
    kata = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "kata"}, "handler": "kata"}
    await client.post("/apis/node.k8s.io/v1/runtimeclasses", {**kata, "overhead": {"podFixed": {"cpu": "250m"}}})
    made = await client.post(PODS, pod("a", runtimeClassName="kata"))
    assert made["spec"]["overhead"] == {"cpu": "250m"}


async def test_where_a_runtime_class_lets_pods_run_is_written_into_them(client: Client) -> None:
    scheduling = {"nodeSelector": {"pool": "kata"}, "tolerations": [{"key": "kata", "operator": "Exists"}]}
    kata = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "kata"}, "handler": "kata"}
    await client.post("/apis/node.k8s.io/v1/runtimeclasses", {**kata, "scheduling": scheduling})
    made = await client.post(PODS, pod("a", runtimeClassName="kata", nodeSelector={"zone": "a"}))
    assert made["spec"]["nodeSelector"] == {"zone": "a", "pool": "kata"}
    assert scheduling["tolerations"][0] in made["spec"]["tolerations"]
    with pytest.raises(errors.Forbidden, match="conflict"):
        await client.post(PODS, pod("b", runtimeClassName="kata", nodeSelector={"pool": "other"}))


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("create"), st.integers(0, 5), st.integers(0, 3)),
        st.tuples(st.just("delete"), st.integers(0, 5), st.just(0)),
        st.tuples(st.just("quota"), st.integers(0, 6), st.integers(0, 8)),
    ),
    max_size=25,
)


@given(STEPS)
@settings(max_examples=60)
def test_no_sequence_of_writes_gets_a_pod_past_the_quota(steps: list[tuple[str, int, int]]) -> None:
    """A pod is let in exactly when it fits what the stored pods leave, recounted from scratch."""
    import async_solipsism

    async def run() -> None:
        from random import Random

        async with SimulatedCluster(Random(0), namespaces=["team-a"]) as cluster:
            client = Client(cluster.api())
            await client.post(QUOTAS, quota("q", pods="3", requests__gpu="4"))
            for step in steps:
                await _apply(client, step)

    loop = async_solipsism.EventLoop()
    try:
        loop.run_until_complete(run())
    finally:
        loop.close()


async def _apply(client: Client, step: tuple[str, int, int]) -> None:
    what, number, amount = step
    if what == "quota":
        hard = {"pods": str(number), "requests.nvidia.com/gpu": str(amount)}
        await client.merge(f"{QUOTAS}/q", {"spec": {"hard": hard}})
        return
    known: dict[str, Any] = {item["metadata"]["name"]: item for item in await client.items(PODS)}
    name = f"p{number}"
    if what == "delete":
        if name in known:
            await client.delete(f"{PODS}/{name}")
        return
    if name in known:
        return
    hard = (await client.get(f"{QUOTAS}/q"))["spec"]["hard"]
    gpus = sum(int(p["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"]) for p in known.values())
    # A quota looks only at what the pod asks of it: one without GPUs passes even where they are over-committed.
    fits = len(known) < int(hard["pods"]) and (not amount or gpus + amount <= int(hard["requests.nvidia.com/gpu"]))
    try:
        await client.post(PODS, pod(name, gpus=amount))
    except errors.Forbidden:
        assert not fits
    else:
        assert fits
