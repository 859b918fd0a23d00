"""Who is on which node, from what is read: bound pods, those to come of DaemonSets, and what is allotted to gangs."""

import re
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.unit.core.worlds import gang
from webhook.cluster.nodes import daemon_set, node, occupancy
from webhook.cluster.nodes.occupancy import WAYS_TRIED, Occupancy
from webhook.cluster.nodes.settling import Held
from webhook.core.ledger.record import Reservation, reserve, with_places
from webhook.core.model.gang import PodPrice, PodSet
from webhook.core.model.pods import PodRecord
from webhook.core.model.policy import HyperNode, Taint
from webhook.core.nodes.allotment import Allotment
from webhook.core.nodes.claimed import Claimed
from webhook.core.nodes.tiers import tier_label


def stored_node(name: str, cpu: int = 4, rack: str = "", **spec: Any) -> node.StoredNode:
    labels = {"kubernetes.io/hostname": name, "rack": rack}
    status = {"allocatable": {"cpu": str(cpu), "pods": "110"}, "images": [{"names": ["a"], "sizeBytes": 1}]}
    metadata = {"name": name, "uid": f"uid-{name}", "resourceVersion": "7", "labels": labels}
    return node.decode(orjson.dumps({"metadata": metadata, "spec": spec, "status": status}))


def pod(uid: str, on: str, cpu: int = 1, **more: Any) -> PodRecord:
    price = PodPrice({"cpu": 1000 * cpu})
    return PodRecord(uid, more.pop("namespace", "team"), uid, 1, price, node=on, **more)


def daemons(namespace: str = "kube-system", cpu: int = 1, **template: Any) -> daemon_set.StoredDaemonSet:
    spec = {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": str(cpu)}}}], **template}
    metadata = {"name": "agents", "namespace": namespace, "uid": "agents", "resourceVersion": "1"}
    return daemon_set.decode(orjson.dumps({"metadata": metadata, "spec": {"template": {"spec": spec}}}))


class Cluster(Occupancy):
    """With two nodes of 4 cpu."""

    def __init__(self) -> None:
        super().__init__(("kube-system",))
        for name in ("a", "b"):
            self.put_node(stored_node(name))

    def settled(self) -> bool:
        held = [Held(entry, {}, gang(entry.uid, "q", pods=2, cpu=2)) for entry in self.unsettled()]
        return self.settle(held, {})

    def cpus(self) -> dict[str, int]:
        """What is free."""
        return {name: free["cpu"] // 1000 for name, free in sorted(self.capacity.free.items())}

    def places(self, uid: str) -> dict[str, int]:
        allotted = self.capacity.allotments.get(uid)
        return {} if allotted is None else allotted.places["main"]


def entry(uid: str, pods: int = 2, **more: Any) -> Reservation:
    made = reserve(gang(uid, "q", pods=pods, cpu=2), "q", {"main": pods}, {}, 1, 0.0)
    return Reservation(**{**{name: getattr(made, name) for name in made.__dataclass_fields__}, **more})


def test_a_node_is_read_without_its_images_and_is_ready_until_it_says_otherwise() -> None:
    read = stored_node("a", unschedulable=True, taints=[{"key": "k", "effect": "NoSchedule"}]).node
    assert read.allocatable == {"cpu": 4000, "pods": 110_000}
    assert (read.ready, read.cordoned, read.taints) == (True, True, (Taint("k"),))
    status = {"conditions": [{"type": "Ready", "status": "Unknown"}]}
    metadata = {"name": "n", "uid": "u", "resourceVersion": "1"}
    assert not node.decode(orjson.dumps({"metadata": metadata, "status": status})).node.ready


def test_every_bound_pod_counts_until_it_has_ended_or_is_gone_and_one_that_is_being_deleted_too() -> None:
    cluster = Cluster()
    cluster.put_pod(pod("foreign", "a", 3, terminating=True))
    cluster.put_pod(pod("unbound", "", 3))
    assert cluster.cpus() == {"a": 1, "b": 4}
    cluster.settled()
    cluster.put_pod(pod("foreign", "a", 3, phase="Failed"))
    assert cluster.cpus() == {"a": 4, "b": 4}
    assert cluster.settled(), "who waits for room is woken"
    assert not cluster.settled()


def test_a_reservation_is_allotted_what_it_has_no_bound_pods_for() -> None:
    cluster = Cluster()
    cluster.set_reservations({"g": entry("g")})
    cluster.settled()
    assert cluster.places("g") == {"a": 2}
    cluster.put_pod(pod("g-0", "b", 2, gang="g", pod_set="main"))
    cluster.settled()
    assert (cluster.places("g"), cluster.cpus()) == ({"a": 1}, {"a": 2, "b": 2})
    cluster.put_pod(pod("g-1", "a", 2, gang="g", pod_set="main"))
    cluster.settled()
    assert (cluster.places("g"), cluster.cpus()) == ({}, {"a": 2, "b": 2})
    cluster.set_reservations({})
    for uid in ("g-0", "g-1"):
        cluster.drop_pod(uid)
    assert cluster.settled()
    assert cluster.cpus() == {"a": 4, "b": 4}


def test_who_has_a_pod_that_became_ready_is_not_looked_at_again() -> None:
    """Nothing of its node has changed; its gang was given all its places again at each condition of each pod."""
    cluster = Cluster()
    cluster.set_reservations({"g": entry("g")})
    cluster.put_pod(pod("g-0", "b", 2, gang="g", pod_set="main"))
    cluster.settled()
    cluster.put_pod(pod("g-0", "b", 2, gang="g", pod_set="main", phase="Running", ready=True))
    assert cluster.changes == 0
    cluster.put_pod(pod("g-0", "b", 3, gang="g", pod_set="main", phase="Running", ready=True))
    assert cluster.changes == 1, "it was resized"


def test_the_room_of_a_pod_that_has_gone_is_kept_for_its_replacement() -> None:
    cluster = Cluster()
    cluster.set_reservations({"g": entry("g")})
    for number, where in enumerate("ab"):
        cluster.put_pod(pod(f"g-{number}", where, 2, gang="g", pod_set="main"))
    cluster.settled()
    cluster.drop_pod("g-1")
    cluster.settled()
    assert (cluster.places("g"), cluster.cpus()) == ({"b": 1}, {"a": 2, "b": 2})


def test_who_may_go_anywhere_makes_way_for_who_may_not() -> None:
    """A pod that was to go to b landed on a; what was kept on b was given to the next gang, and one of the rack's ran
    in part.
    """
    cluster = Cluster()
    pinned = with_places(entry("1", pods=1), {"main": {"a": 1}}, {"main": {"kubernetes.io/hostname": "a"}})
    free = with_places(entry("2", pods=1), {"main": {"a": 1}})
    astray = with_places(entry("3", pods=1), {"main": {"b": 1}})
    cluster.set_reservations({each.uid: each for each in (pinned, free, astray)})
    cluster.settled()
    assert (cluster.places("1"), cluster.places("2"), cluster.places("3")) == ({"a": 1}, {"a": 1}, {"b": 1})
    cluster.put_pod(pod("3-0", "a", 2, gang="3", pod_set="main"))
    cluster.settled()
    assert (cluster.places("1"), cluster.places("2"), cluster.short) == ({"a": 1}, {"b": 1}, {})
    cluster.settled()
    assert cluster.moved() == ["2"], "a new leader has to know"


def test_nobody_makes_way_who_fits_nowhere_else_or_is_being_stopped() -> None:
    for stopping, b_is_full in ((None, True), ("Preempted", False)):
        cluster = Cluster()
        if b_is_full:
            cluster.put_pod(pod("foreign", "b", 3))
        pinned = with_places(entry("1", pods=1), {"main": {"a": 1}}, {"main": {"kubernetes.io/hostname": "a"}})
        other = with_places(entry("2", pods=1, stopping=stopping), {"main": {"a": 1}})
        cluster.set_reservations({each.uid: each for each in (pinned, other)})
        cluster.settled()
        cluster.put_pod(pod("astray", "a", 2))
        cluster.settled()
        assert (cluster.places("2"), cluster.short) == ({"a": 1}, {"1": 1})


def test_one_settling_looks_for_others_that_make_way_only_so_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that is lost to others may leave many gangs short, each of another shape: a leader would hang over it."""
    asked = Mock(return_value={})
    monkeypatch.setattr(occupancy, "place_most", asked)
    cluster = Occupancy()
    cluster.put_node(stored_node("a", cpu=4000))
    gangs = {f"{number:02}": gang(f"{number:02}", "q", pods=1, cpu=number + 1) for number in range(60)}
    reserved = {uid: reserve(each, "q", {"main": 1}, {}, 1, 0.0) for uid, each in gangs.items()}
    cluster.set_reservations({uid: with_places(each, {"main": {"a": 1}}) for uid, each in reserved.items()})
    cluster.settle([Held(each, {}, gangs[each.uid]) for each in cluster.unsettled()], {})
    cluster.put_pod(pod("foreign", "a", 3000))
    asked.reset_mock()
    cluster.settle([Held(each, {}, gangs[each.uid]) for each in cluster.unsettled()], {})
    assert len(cluster.short) > 20
    assert asked.call_count <= len(cluster.short) + WAYS_TRIED


def test_a_gang_that_is_being_stopped_keeps_all_that_it_had_until_its_entry_is_dropped() -> None:
    cluster = Cluster()
    cluster.set_reservations({"g": entry("g")})
    cluster.settled()
    cluster.put_pod(pod("g-0", "b", 2, gang="g", pod_set="main"))
    cluster.settled()
    cluster.set_reservations({"g": entry("g", stopping="Preempted")})
    cluster.drop_pod("g-0")
    cluster.settled()
    assert (cluster.places("g"), cluster.cpus()) == ({"a": 1, "b": 1}, {"a": 2, "b": 2})
    cluster.set_reservations({})
    assert cluster.settled()
    assert cluster.cpus() == {"a": 4, "b": 4}


def test_who_takes_over_keeps_the_places_of_a_gang_that_is_being_stopped() -> None:
    """A start that was sent before may land yet."""
    cluster = Cluster()
    pod_sets = tuple(replace(each, places={"b": 2}) for each in entry("g").pod_sets)
    cluster.set_reservations({"g": entry("g", stopping="OnHold", pod_sets=pod_sets)})
    cluster.settled()
    assert (cluster.places("g"), cluster.cpus()) == ({"b": 2}, {"a": 4, "b": 0})


def test_what_was_decided_and_never_written_is_given_back_when_a_term_begins() -> None:
    cluster = Cluster()
    cluster.set_reservations({"g": entry("g")})
    cluster.settled()
    cluster.capacity.allot("lost", cluster.capacity.allotments["g"])
    cluster.forget_decisions()
    assert list(cluster.capacity.allotments) == ["g"]


def test_the_pod_of_a_daemon_set_that_a_new_node_will_get_is_counted_before_it_comes_and_once() -> None:
    cluster = Cluster()
    cluster.put_daemon_set(daemons())
    cluster.settled()
    assert cluster.cpus() == {"a": 3, "b": 3}
    cluster.put_pod(pod("agent-a", "a", owner_uid="agents", namespace="kube-system"))
    cluster.put_node(stored_node("c"))
    cluster.settled()
    assert cluster.cpus() == {"a": 3, "b": 3, "c": 3}
    cluster.drop_daemon_set("agents")
    assert cluster.cpus() == {"a": 3, "b": 4, "c": 4}


def test_pods_of_a_daemon_set_that_were_read_before_it_are_counted_once() -> None:
    cluster = Cluster()
    cluster.put_pod(pod("agent-a", "a", owner_uid="agents", namespace="kube-system"))
    cluster.put_daemon_set(daemons())
    cluster.settled()
    assert cluster.cpus() == {"a": 3, "b": 3}


@pytest.mark.parametrize(
    "kept_out",
    [daemons("team"), daemons(nodeSelector={"gpu": "yes"}), daemons(cpu=5)],
    ids=["a tenant's", "of other nodes", "too large"],
)
def test_no_room_is_held_for_daemon_pods_of_tenants_nor_for_those_that_could_not_come(
    kept_out: daemon_set.StoredDaemonSet,
) -> None:
    cluster = Cluster()
    cluster.put_daemon_set(kept_out)
    cluster.settled()
    assert cluster.cpus() == {"a": 4, "b": 4}


def test_a_cordoned_node_takes_no_gang_and_its_daemon_pods_all_the_same() -> None:
    cluster = Cluster()
    cluster.put_daemon_set(daemons())
    cluster.put_node(stored_node("a", unschedulable=True, taints=[_taint("unschedulable")]))
    cluster.set_reservations({"g": entry("g", pods=1)})
    cluster.settled()
    assert cluster.places("g") == {"b": 1}
    assert cluster.cpus()["a"] == 3


def _taint(name: str) -> dict[str, str]:
    return {"key": f"node.kubernetes.io/{name}", "effect": "NoSchedule"}


def test_who_takes_over_keeps_the_places_that_the_ledger_has() -> None:
    cluster = Cluster()
    placed = with_places(entry("g"), {"main": {"a": 1, "b": 1}})
    cluster.put_pod(pod("g-0", "b", 2, gang="g", pod_set="main"))
    cluster.set_reservations({"g": placed})
    cluster.settled()
    assert (cluster.places("g"), cluster.cpus()) == ({"a": 1}, {"a": 2, "b": 2})


@pytest.mark.parametrize("lost", [{"unschedulable": True}, None], ids=["cordoned", "deleted"])
def test_what_was_to_go_to_a_node_that_is_lost_is_placed_again(lost: dict[str, Any] | None) -> None:
    cluster = Cluster()
    cluster.set_reservations({"g": with_places(entry("g"), {"main": {"a": 2}})})
    cluster.settled()
    assert cluster.places("g") == {"a": 2}
    if lost is None:
        cluster.drop_node("a")
    else:
        cluster.put_node(stored_node("a", **lost))
    cluster.settled()
    assert cluster.places("g") == {"b": 2}


def test_what_was_to_go_where_others_came_first_is_placed_again() -> None:
    """Else two gangs are counted on one node, and the room that one of them takes elsewhere seems free."""
    cluster = Cluster()
    cluster.set_reservations({"g": with_places(entry("g"), {"main": {"a": 2}})})
    cluster.settled()
    cluster.put_pod(pod("foreign", "a", 4))
    cluster.settled()
    assert cluster.places("g") == {"b": 2}
    assert cluster.cpus()["a"] == 0


def test_all_sets_are_placed_again_where_others_came_first() -> None:
    """Else the node is counted for the second set still, as its room was not taken while the first was placed."""
    cluster, whole = Cluster(), entry("g", 1)
    (main,) = whole.pod_sets
    sets = (replace(main, name="first", places={"a": 1}), replace(main, places={"a": 1}))
    cluster.set_reservations({"g": replace(whole, pod_sets=sets)})
    cluster.settled()
    assert cluster.cpus() == {"a": 0, "b": 4}
    cluster.put_pod(pod("foreign", "a", 4))
    cluster.settled()
    assert cluster.cpus() == {"a": 0, "b": 0}


def test_who_has_started_goes_before_who_claims() -> None:
    """Else who claims starts there beside it, and one of the two is not whole."""
    cluster = Cluster()
    cluster.set_reservations({"g": with_places(entry("g"), {"main": {"a": 2}})})
    cluster.settled()
    shape = cluster.capacity.allotments["g"].shapes["main"]
    cluster.capacity.claim("waits", Claimed(Allotment({"main": shape}, {"main": {"b": 2}}), set()))
    cluster.put_pod(pod("foreign", "a", 2))
    cluster.settled()
    assert (cluster.places("g"), cluster.short) == ({"a": 1, "b": 1}, {})
    assert not cluster.capacity.keeps("waits")


def test_what_has_to_be_in_one_rack_is_placed_again_within_it_or_not_at_all() -> None:
    cluster = Cluster()
    for name, rack in (("a", "r1"), ("b", "r2"), ("c", "r1")):
        cluster.put_node(stored_node(name, rack=rack))
    placed = with_places(entry("g"), {"main": {"a": 2}}, {"main": {"rack": "r1"}})
    cluster.set_reservations({"g": placed})
    cluster.settled()
    cluster.drop_node("a")
    cluster.settled()
    assert (cluster.places("g"), cluster.short) == ({"c": 2}, {})
    cluster.drop_node("c")
    cluster.settled()
    assert cluster.short == {"g": 2}
    assert cluster.cpus()["b"] == 4, "the other rack is not for it"


@given(
    st.lists(st.tuples(st.dictionaries(st.sampled_from("ab"), st.integers(1, 2)), st.booleans()), max_size=3),
    st.permutations("xyz"),
)
def test_what_entries_say_of_nodes_that_others_have_by_now_is_kept_elsewhere_or_owed(
    asked: list[tuple[dict[str, int], bool]], uids: list[str]
) -> None:
    """A process that starts reads where each was to go at first; since then the room of some is kept elsewhere."""
    cluster, entries = Cluster(), {}
    for uid, (places, stops) in zip(uids, asked, strict=False):
        pods = sum(places.values()) or 1
        whole = entry(uid, pods, stopping="OnHold" if stops else None)
        entries[uid] = replace(whole, pod_sets=(replace(whole.pod_sets[0], places=places),))
    cluster.set_reservations(entries)
    cluster.settled()
    free = cluster.cpus()
    fits = sum(each.pod_sets[0].count for each in entries.values()) <= 4
    kept = all(sum(cluster.places(uid).values()) == each.pod_sets[0].count for uid, each in entries.items())
    assert not fits or (kept and min(free.values()) >= 0)
    assert min(free.values()) >= 0 or max(free.values()) < 2, "nothing is free while somebody has no room"
    cluster.settled()
    assert cluster.cpus() == free


def test_a_new_leader_gives_nobody_what_the_ledger_keeps_for_another() -> None:
    """``g`` lost its node and goes anywhere: not where ``h`` is on its way to, though it is looked at first."""
    cluster = Cluster()
    entries = {"g": with_places(entry("g"), {"main": {"lost": 2}}), "h": with_places(entry("h"), {"main": {"a": 2}})}
    cluster.set_reservations(entries)
    cluster.settled()
    assert (cluster.places("g"), cluster.places("h")) == ({"b": 2}, {"a": 2})


def test_who_is_looked_at_first_makes_way_for_whom_the_ledger_keeps_the_node() -> None:
    """A process that starts looks at some gangs at a time."""
    cluster = Cluster()
    entries = {"g": with_places(entry("g"), {"main": {"lost": 2}}), "h": with_places(entry("h"), {"main": {"a": 2}})}
    cluster.set_reservations(entries)
    for most, kept in ((1, {"a": 2}), (None, {"b": 2})):
        held = [Held(each, {}, gang(each.uid, "q", pods=2, cpu=2)) for each in cluster.unsettled(most)]
        cluster.settle(held, {})
        assert cluster.places("g") == kept
    assert (cluster.places("h"), cluster.short) == ({"a": 2}, {})


def test_what_was_placed_again_is_written_in_order_of_ranks() -> None:
    cluster = Cluster()
    cluster.put_node(stored_node("c"))
    placed = with_places(entry("g", 4), {"main": {"a": 1, "b": 2, "c": 1}})
    cluster.set_reservations({"g": placed})
    cluster.settled()
    assert cluster.moved() == []
    cluster.put_pod(pod("g-0", "a", 2, gang="g", pod_set="main"))
    cluster.drop_node("b")
    cluster.settled()
    assert cluster.moved() == ["g"]
    written = cluster.with_moves(placed)
    (main,) = written.pod_sets
    assert list(main.places.items()) == [("a", 2), ("c", 2)]
    cluster.set_reservations({"g": written})
    cluster.settled()
    assert (cluster.moved(), cluster.with_moves(written)) == ([], written)


@given(
    st.lists(st.dictionaries(st.sampled_from("abcx"), st.integers(1, 2), min_size=1), max_size=4),
    st.lists(st.integers(0, 2), min_size=3, max_size=3),
)
def test_who_takes_over_what_was_written_keeps_the_same_places(asked: list[dict[str, int]], others: list[int]) -> None:
    """Whatever was lost, and whoever came first: each was placed again, and the ledger says where."""

    def there() -> Cluster:
        cluster = Cluster()
        cluster.put_node(stored_node("c"))
        for name, pods in zip("abc", others, strict=True):
            for number in range(pods):
                cluster.put_pod(pod(f"other-{name}-{number}", name, 2))
        return cluster

    before, after = there(), there()
    uids = [f"g{number}" for number in range(len(asked))]
    entries = {
        uid: with_places(entry(uid, sum(places.values())), {"main": places})
        for uid, places in zip(uids, asked, strict=True)
    }
    before.set_reservations(entries)
    before.settled()
    written = {uid: before.with_moves(each) for uid, each in entries.items()}
    assert all(sum(each.pod_sets[0].places.values()) == each.pod_sets[0].count for each in written.values())
    after.set_reservations(written)
    after.settled()
    assert before.short or {uid: after.places(uid) for uid in uids} == {uid: before.places(uid) for uid in uids}


def test_a_set_keeps_its_place_though_another_of_its_gang_finds_none() -> None:
    cluster, whole = Cluster(), entry("g", 2)
    (main,) = whole.pod_sets
    big = PodPrice({"cpu": 9000})
    sets = (replace(main, name="big", count=1, price=big, places={"a": 1}), replace(main, places={"b": 2}))
    found = replace(whole, pod_sets=sets)
    cluster.set_reservations({"g": found})
    asking = replace(
        gang("g", "q", pods=2, cpu=2),
        pod_sets=(PodSet("big", 1, big), gang("g", "q", pods=2, cpu=2).pod_sets[0]),
    )
    for _ in range(2):
        cluster.touch("g")
        cluster.settle([Held(each, {}, asking) for each in cluster.unsettled()], {})
        assert cluster.cpus() == {"a": -5, "b": 0}, "what it does not get of the one is owed there"


@given(
    st.lists(st.tuples(st.integers(0, 3), st.sampled_from("abc")), min_size=1, max_size=3),
    st.lists(st.integers(0, 2), min_size=3, max_size=3),
)
@example([(1, "a"), (1, "b")], [2, 1, 0])
def test_no_two_sets_of_a_gang_are_kept_the_same_room(sets: list[tuple[int, str]], others: list[int]) -> None:
    """Where others are by now where one set was to go, it is not to find the room that another set was to have."""
    cluster, whole, asking = Cluster(), entry("g"), gang("g", "q", pods=2, cpu=2)
    cluster.put_node(stored_node("c"))
    for node_name, pods in zip("abc", others, strict=True):
        for number in range(pods):
            cluster.put_pod(pod(f"other-{node_name}-{number}", node_name, 2))
    reserved, of_gang = whole.pod_sets[0], asking.pod_sets[0]
    cluster.set_reservations(
        {
            "g": replace(
                whole,
                pod_sets=tuple(
                    replace(reserved, name=str(number), count=pods, places={on: pods} if pods else {})
                    for number, (pods, on) in enumerate(sets)
                ),
            )
        }
    )
    named = tuple(replace(of_gang, name=str(number), count=pods) for number, (pods, _) in enumerate(sets))
    cluster.settle([Held(each, {}, replace(asking, pod_sets=named)) for each in cluster.unsettled()], {})
    if sum(pods for pods, _ in sets) + sum(others) <= 6:
        assert cluster.short == {}
        assert min(cluster.cpus().values()) >= 0
    else:
        assert cluster.short
        assert max(cluster.cpus().values()) == 0


@pytest.mark.parametrize("rules", [0, 40])
def test_nodes_are_labelled_anew_in_parts_that_rules_make_smaller(rules: int) -> None:
    cluster = Occupancy()
    names = [f"n{number}" for number in range(200)]
    for name in names:
        cluster.put_node(stored_node(name))
    by_rule = [HyperNode(f"r{number}", 1, patterns=(re.compile(f"^x{number}$"),)) for number in range(rules)]
    assert cluster.take_hyper_nodes((HyperNode("all", 2, nodes=frozenset(names)), *by_rule))
    parts = 1
    while cluster.label_nodes(most=42):
        parts += 1
    # A part ends with the node that fills it.
    assert parts == -(-200 // -(-42 // (1 + rules // 8)))
    cluster.drop_node(names.pop())
    assert cluster.nodes_in({tier_label(2): "all"}) == sorted(names)
