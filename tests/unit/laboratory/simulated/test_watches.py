"""Lists and watches: what is told, in which order, and when a position is too old."""

import asyncio
from typing import Any

import orjson
import pytest

from tests.unit.laboratory.simulated.clients import CONFIGMAPS, JOBS, Client, config_map, job
from webhook import errors
from webhook.laboratory.simulated.cluster import SimulatedCluster
from webhook.laboratory.simulated.objects import watches
from webhook.laboratory.simulated.objects.store import Stored
from webhook.laboratory.simulated.objects.watches import Selection
from webhook.laboratory.simulated.requests.router import Request

pytestmark = pytest.mark.virtual_time


async def watched(client: Client, path: str, seconds: float, **query: str) -> list[tuple[str, Any]]:
    """Return the events of one watch that the server ends after some seconds."""
    query = {"timeoutSeconds": str(seconds), **query}
    lines = [orjson.loads(line) async for line in client.api.watch(path, query=query, idle_seconds=3600)]
    return [(line["type"], line["object"]) for line in lines]


def told(events: list[tuple[str, Any]]) -> list[tuple[str, str]]:
    return [(kind, item["metadata"]["name"]) for kind, item in events if kind != "BOOKMARK"]


async def test_a_watch_tells_what_happened_since_its_version_and_what_happens_then(client: Client) -> None:
    await client.post(CONFIGMAPS, config_map("before"))
    version = (await client.get(CONFIGMAPS))["metadata"]["resourceVersion"]
    await client.post(CONFIGMAPS, config_map("a"))

    async def write() -> None:
        await asyncio.sleep(1)
        await client.merge(f"{CONFIGMAPS}/a", {"data": {"x": "1"}})
        await client.delete(f"{CONFIGMAPS}/a")

    writing = asyncio.create_task(write())
    events = await watched(client, CONFIGMAPS, 5, resourceVersion=version)
    await writing
    assert told(events) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]
    versions = [int(item["metadata"]["resourceVersion"]) for _, item in events]
    assert versions == sorted(set(versions))


async def test_a_watch_without_version_begins_with_all_objects(client: Client) -> None:
    await client.post(CONFIGMAPS, config_map("a"))
    assert told(await watched(client, CONFIGMAPS, 1)) == [("ADDED", "a")]


async def test_entering_and_leaving_a_selector_is_told_as_added_and_deleted(client: Client) -> None:
    made = await client.post(CONFIGMAPS, config_map("a"))
    for value in ("yes", "no"):
        await client.merge(f"{CONFIGMAPS}/a", {"metadata": {"labels": {"wanted": value}}})
    version = made["metadata"]["resourceVersion"]
    events = await watched(client, CONFIGMAPS, 1, resourceVersion=version, labelSelector="wanted=yes")
    assert told(events) == [("ADDED", "a"), ("DELETED", "a")]


async def test_a_position_beyond_the_kept_history_is_told_410_in_the_stream() -> None:
    from random import Random

    async with SimulatedCluster(Random(1), history=4, namespaces=["team-a"]) as cluster:
        client = Client(cluster.api())
        first = await client.post(CONFIGMAPS, config_map("a"))
        for number in range(5):
            await client.merge(f"{CONFIGMAPS}/a", {"data": {"x": str(number)}})
        events = await watched(client, CONFIGMAPS, 1, resourceVersion=first["metadata"]["resourceVersion"])
        assert [(kind, item["code"], item["reason"]) for kind, item in events] == [("ERROR", 410, "Expired")]


async def test_compaction_expires_every_earlier_position(cluster: SimulatedCluster, client: Client) -> None:
    first = await client.post(CONFIGMAPS, config_map("a"))
    await client.merge(f"{CONFIGMAPS}/a", {"data": {"x": "1"}})
    cluster.server.store.compact()
    events = await watched(client, CONFIGMAPS, 1, resourceVersion=first["metadata"]["resourceVersion"])
    assert events[0][1]["code"] == 410
    now = (await client.get(CONFIGMAPS))["metadata"]["resourceVersion"]
    assert await watched(client, CONFIGMAPS, 1, resourceVersion=now) == []


async def test_bookmarks_move_the_position_while_nothing_happens(client: Client) -> None:
    version = (await client.get(CONFIGMAPS))["metadata"]["resourceVersion"]
    await client.post(JOBS, job("elsewhere", suspend=True))
    events = await watched(client, CONFIGMAPS, 130, resourceVersion=version, allowWatchBookmarks="true")
    assert [kind for kind, _ in events] == ["BOOKMARK"] * 3
    assert int(events[-1][1]["metadata"]["resourceVersion"]) > int(version)
    assert events[0][1]["kind"] == "ConfigMap"


async def test_a_line_that_comes_in_time_costs_no_timer(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the simulation's timers a third were of readers who had a line long before."""
    loop, made = asyncio.get_running_loop(), list[float]()
    call_at = loop.call_at

    def counted(when: float, callback: Any, *args: Any, **kwargs: Any) -> asyncio.TimerHandle:
        if callback.__module__ == watches.__name__:
            made.append(when)
        return call_at(when, callback, *args, **kwargs)

    monkeypatch.setattr(loop, "call_at", counted)
    reading = asyncio.create_task(watched(client, CONFIGMAPS, 30, allowWatchBookmarks="true"))
    for name in "abcd":
        await asyncio.sleep(1)
        await client.post(CONFIGMAPS, config_map(name))
    assert told(await reading) == [("ADDED", name) for name in "abcd"]
    assert len(made) == 1


async def test_what_many_watches_select_alike_is_looked_at_once(
    cluster: SimulatedCluster, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All our processes watch the same ConfigMaps by the same selectors."""
    query = {"watch": "true", "fieldSelector": "metadata.name=a"}
    opened = [cluster.router.watch(Request("GET", CONFIGMAPS, query)) for _ in range(3)]
    looked, holds = list[str](), Selection.holds

    def counted(selection: Selection, stored: Stored) -> bool:
        looked.append(stored.key[1])
        return holds(selection, stored)

    monkeypatch.setattr(Selection, "holds", counted)
    await client.post(CONFIGMAPS, config_map("a"))
    await client.post(CONFIGMAPS, config_map("b"))
    assert looked == ["a", "b"]
    assert [len(each._lines) for each in opened] == [1, 1, 1]
    for each in opened:
        each.end()


async def test_initial_events_end_with_a_marked_bookmark(client: Client) -> None:
    await client.post(CONFIGMAPS, config_map("a"))
    events = await watched(client, CONFIGMAPS, 1, sendInitialEvents="true", allowWatchBookmarks="true")
    assert [kind for kind, _ in events[:2]] == ["ADDED", "BOOKMARK"]
    assert events[1][1]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


async def test_a_reader_gives_up_after_idle_time(client: Client) -> None:
    lines = [line async for line in client.api.watch(CONFIGMAPS, query={"resourceVersion": "1"}, idle_seconds=5)]
    assert lines == []


async def test_pages_of_a_list_are_of_one_revision(cluster: SimulatedCluster, client: Client) -> None:
    for name in "abcde":
        await client.post(CONFIGMAPS, config_map(name))
    first = await client.get(CONFIGMAPS, limit="2")
    await client.delete(f"{CONFIGMAPS}/e")
    second = await client.get(CONFIGMAPS, limit="2", **{"continue": first["metadata"]["continue"]})
    third = await client.get(CONFIGMAPS, limit="2", **{"continue": second["metadata"]["continue"]})
    names = [item["metadata"]["name"] for page in (first, second, third) for item in page["items"]]
    assert names == list("abcde")
    assert first["metadata"]["remainingItemCount"] == 3
    assert first["metadata"]["resourceVersion"] == third["metadata"]["resourceVersion"]
    cluster.router.forget_pages()
    with pytest.raises(errors.Gone):
        await client.get(CONFIGMAPS, limit="2", **{"continue": first["metadata"]["continue"]})


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("team=red", ["a"]),
        ("team!=red", ["b", "c"]),
        ("team in (red,blue)", ["a", "b"]),
        ("team notin (red)", ["b", "c"]),
        ("team", ["a", "b"]),
        ("!team", ["c"]),
        ("team,team!=blue", ["a"]),
    ],
)
async def test_label_selectors_select_as_kubernetes_does(client: Client, selector: str, expected: list[str]) -> None:
    for name, labels in (("a", {"team": "red"}), ("b", {"team": "blue"}), ("c", {})):
        await client.post(CONFIGMAPS, {**config_map(name), "metadata": {"name": name, "labels": labels}})
    assert await client.names(CONFIGMAPS, labelSelector=selector) == expected


async def test_field_selectors_know_the_name_and_refuse_unknown_fields(client: Client) -> None:
    await client.post(CONFIGMAPS, config_map("a"))
    await client.post(CONFIGMAPS, config_map("b"))
    assert await client.names(CONFIGMAPS, fieldSelector="metadata.name=b") == ["b"]
    with pytest.raises(errors.Invalid, match="field label not supported"):
        await client.get(CONFIGMAPS, fieldSelector="data.x=1")


async def test_items_of_built_in_lists_do_not_repeat_their_kind(client: Client) -> None:
    await client.post(CONFIGMAPS, config_map("a"))
    listed = await client.get(CONFIGMAPS)
    assert (listed["kind"], listed["apiVersion"]) == ("ConfigMapList", "v1")
    assert "kind" not in listed["items"][0]


async def test_what_is_stored_in_one_version_is_served_in_the_other(client: Client) -> None:
    flavor = {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "ResourceFlavor", "metadata": {"name": "default"}}
    await client.post("/apis/kueue.x-k8s.io/v1beta1/resourceflavors", flavor)
    read = await client.get("/apis/kueue.x-k8s.io/v1beta2/resourceflavors/default")
    assert read["apiVersion"] == "kueue.x-k8s.io/v1beta2"


async def test_unknown_kinds_are_not_found_until_their_definition_is_stored(client: Client) -> None:
    path = "/apis/example.com/v1/namespaces/team-a/widgets"
    with pytest.raises(errors.NotFound):
        await client.get(path)
    names = {"plural": "widgets", "kind": "Widget"}
    versions = [{"name": "v1", "served": True, "storage": True, "subresources": {"status": {}}}]
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {"group": "example.com", "names": names, "scope": "Namespaced", "versions": versions},
    }
    await client.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
    assert await client.names(path) == []


async def test_events_of_the_new_group_read_as_core_events_and_back(client: Client) -> None:
    new = "/apis/events.k8s.io/v1/namespaces/team-a/events"
    event = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "e"},
        "regarding": {"kind": "Job", "name": "a", "namespace": "team-a"},
        "note": "queued: 2 of 4 GPUs are free",
        "reason": "Queued",
        "type": "Normal",
        "reportingController": "tutti.dev/reconciler",
    }
    made = await client.post(new, event)
    assert (made["apiVersion"], made["note"]) == ("events.k8s.io/v1", event["note"])
    query = {"fieldSelector": "involvedObject.name=a"}
    (core,) = await client.items("/api/v1/namespaces/team-a/events", **query)
    assert (core["message"], core["involvedObject"]["kind"]) == (event["note"], "Job")
    changed = await client.merge(f"{new}/e", {"note": "admitted"})
    assert changed["note"] == "admitted"
    assert (await client.get("/api/v1/namespaces/team-a/events/e"))["message"] == "admitted"


async def test_a_patch_through_the_other_version_is_no_change_of_version(client: Client) -> None:
    flavor = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": "f"}}
    await client.post("/apis/kueue.x-k8s.io/v1beta2/resourceflavors", flavor)
    older = "/apis/kueue.x-k8s.io/v1beta1/resourceflavors/f"
    labelled = await client.merge(older, {"metadata": {"labels": {"a": "b"}}})
    assert (labelled["apiVersion"], labelled["metadata"]["generation"]) == ("kueue.x-k8s.io/v1beta1", 1)
