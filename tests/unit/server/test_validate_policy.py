"""Policy that does not compile is refused with path, value and fix; what only dangles is warned about."""

from typing import Any

from tests.unit.server.reviews import Answered, ask, review, view
from webhook.dialects.config_map import LENGTH_MAX
from webhook.server.handler import ReviewHandler

GROUP = "kueue.x-k8s.io/v1beta1"


def cluster_queue(quota: Any = "8", **spec: Any) -> dict[str, Any]:
    flavor = {"name": "default", "resources": [{"name": "cpu", "nominalQuota": quota}]}
    groups = [{"coveredResources": ["cpu"], "flavors": [flavor]}]
    return {
        "apiVersion": GROUP,
        "kind": "ClusterQueue",
        "metadata": {"name": "research"},
        "spec": {"namespaceSelector": {}, "resourceGroups": groups, **spec},
    }


FLAVOR = {"apiVersion": GROUP, "kind": "ResourceFlavor", "metadata": {"name": "default"}, "spec": {}}


async def judge(obj: dict[str, Any], *stored: dict[str, Any], old: dict[str, Any] | None = None) -> Answered:
    handler = ReviewHandler(view(), policy_objects=lambda plural: stored)
    operation = "CREATE" if old is None else "UPDATE"
    body = review(obj, old=old, operation=operation, resource=f"{obj['kind'].lower()}s", namespace="")
    return await ask(handler, "/validate/policy", body)


async def test_a_good_queue_is_stored_in_silence() -> None:
    answer = await judge(cluster_queue(), FLAVOR)
    assert answer.allowed
    assert answer.warnings == []


async def test_a_queue_that_does_not_compile_is_refused_with_path_and_value() -> None:
    answer = await judge(cluster_queue("eight"), FLAVOR)
    assert answer.code == 422
    assert "nominalQuota" in answer.message
    assert "eight" in answer.message


async def test_a_flavor_that_does_not_exist_yet_is_a_warning() -> None:
    answer = await judge(cluster_queue())
    assert answer.allowed
    assert "default" in answer.warnings[0]


async def test_a_broken_queue_stays_editable_beside_its_spec() -> None:
    broken = cluster_queue("eight")
    labelled = broken | {"metadata": {"name": "research", "labels": {"a": "b"}}}
    assert (await judge(labelled, FLAVOR, broken, old=broken)).allowed
    deleted = cluster_queue("nine") | {"metadata": {"name": "research", "deletionTimestamp": "2026-01-01T00:00:00Z"}}
    assert (await judge(deleted, FLAVOR, broken, old=broken)).allowed


def config_map(text: str) -> dict[str, Any]:
    metadata = {"name": "tutti-policy", "namespace": "tutti-system"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a.yaml": text}}


async def test_the_policy_config_map_is_judged_as_a_whole() -> None:
    handler = ReviewHandler(view())
    for text, code in (("kind: [", 422), ("", 200), ("just text", 422)):
        body = review(config_map(text), namespace="tutti-system", resource="configmaps")
        assert (await ask(handler, "/validate/policy", body)).code == code


async def test_no_config_map_grows_longer_than_a_loop_reads_at_once_and_one_that_is_stays_editable() -> None:
    async def changed(before: str, after: str) -> Answered:
        body = review(config_map(after), old=config_map(before), operation="UPDATE", resource="configmaps")
        return await ask(ReviewHandler(view()), "/validate/policy", body)

    allowed, long = "#" * LENGTH_MAX, "#" * (LENGTH_MAX + 1)
    assert (await changed("", allowed)).allowed
    refused = await changed("", long)
    assert refused.code == 422
    assert f"/data: is longer than {LENGTH_MAX} characters" in refused.message
    assert (await changed(long, f"{long} edited")).allowed
    assert (await changed(long, "")).allowed


async def test_deletion_passes_and_other_operations_do_not() -> None:
    handler = ReviewHandler(view())
    body = review(None, old=cluster_queue(), operation="DELETE", resource="clusterqueues", namespace="")
    assert (await ask(handler, "/validate/policy", body)).allowed
    body = review(cluster_queue(), operation="CONNECT", resource="clusterqueues", namespace="")
    assert (await ask(handler, "/validate/policy", body)).code == 400


def nested(levels: int, names: int = 0) -> dict[str, Any]:
    """A queue with a field that Kueue may add one day, so deep, beside so many small ones."""
    inner: Any = 1
    for _ in range(levels):
        inner = {"x": inner}
    return cluster_queue() | {
        "spec": cluster_queue()["spec"] | {"later": inner} | dict.fromkeys(map(str, range(names)), 1)
    }


async def test_a_field_of_a_newer_kueue_is_stored_with_a_warning() -> None:
    answer = await judge(nested(8), FLAVOR)
    assert answer.allowed
    assert "/spec/later" in answer.warnings[0]


async def test_an_object_nested_deeper_than_is_read_is_refused_however_long_it_is() -> None:
    for names in (0, 20_000):
        answer = await judge(nested(110, names), FLAVOR)
        assert answer.code == 422
        assert "nested more than 100 levels deep" in answer.message


async def test_one_that_was_stored_so_deep_before_keeps_its_labels_editable() -> None:
    deep = nested(110)
    assert (
        await judge(deep | {"metadata": {"name": "research", "labels": {"a": "b"}}}, FLAVOR, deep, old=deep)
    ).allowed


async def test_a_local_queue_keeps_its_target_though_no_other_is_looked_at() -> None:
    """Nothing hangs on LocalQueues, of which there are thousands: a review is judged beside the other kinds alone."""

    def local_queue(target: str) -> dict[str, Any]:
        metadata = {"name": "lq", "namespace": "team-a"}
        return {"apiVersion": GROUP, "kind": "LocalQueue", "metadata": metadata, "spec": {"clusterQueue": target}}

    asked = []

    def stored(plural: str) -> list[dict[str, Any]]:
        asked.append(plural)
        return [cluster_queue(), FLAVOR]

    handler = ReviewHandler(view(), policy_objects=stored)
    for target, allowed in (("research", True), ("another", False)):
        body = review(
            local_queue(target) | {"metadata": {"name": "lq", "namespace": "team-a", "labels": {"a": "b"}}},
            old=local_queue("research"),
            operation="UPDATE",
            resource="localqueues",
            namespace="team-a",
        )
        assert (await ask(handler, "/validate/policy", body)).allowed is allowed
    assert set(asked) == {"localqueues"}
