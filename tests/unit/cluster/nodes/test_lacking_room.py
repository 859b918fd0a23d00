"""Gangs that have started and lack room on nodes: what becomes free is for them first."""

from tests.unit.cluster.nodes.test_occupancy import Cluster, entry, pod, stored_node


def test_who_has_started_and_finds_no_node_has_what_becomes_free_before_anybody_new() -> None:
    """Nobody knows where its pods were to go after a rebuild, where there was no node as it started, or if they are on
    very many: what came was taken for free, and another gang started there while the scheduler gave it to these pods.
    """
    cluster = Cluster()
    for name in "ab":
        cluster.put_pod(pod(f"foreign-{name}", name, 3))
    cluster.set_reservations({"g": entry("g")})
    cluster.settled()
    assert (cluster.places("g"), cluster.changes, cluster.look_again()) == ({}, 0, True)
    cluster.settled()
    cluster.put_node(stored_node("c"))
    cluster.settled()
    assert (cluster.places("g"), cluster.cpus()["c"]) == ({"c": 2}, 0)


def test_who_lacks_room_and_is_not_stopped_for_it_is_looked_at_when_something_has_become_free_alone() -> None:
    """There may be thousands whose nodes are still to be made."""
    cluster = Cluster()
    for name in "ab":
        cluster.put_pod(pod(f"foreign-{name}", name, 4))
    cluster.set_reservations({"g": entry("g")})
    cluster.settled()
    cluster.look_again()
    cluster.settled()
    assert (cluster.look_again(), cluster.changes) == (True, 0)
    cluster.put_pod(pod("foreign-a", "a", 2))
    assert (cluster.look_again(), cluster.changes) == (True, 1)
    cluster.settled()
    assert cluster.places("g") == {"a": 1}


def test_what_a_gang_kept_for_its_last_pods_is_theirs_too_once_it_is_let_go() -> None:
    """Long after these pods had gone: nobody noticed, and another gang was started there."""
    cluster = Cluster()
    cluster.put_pod(pod("foreign", "b", 4))
    for name in ("p", "q"):
        cluster.put_pod(pod(name, "a", 2, gang="ends", pod_set="main"))
    cluster.set_reservations({"ends": entry("ends", stopping="Preempted"), "g": entry("g")})
    cluster.settled()
    for name in ("p", "q"):
        cluster.drop_pod(name)
    while cluster.settled():
        cluster.look_again()
    assert (cluster.places("ends"), cluster.places("g")) == ({"a": 2}, {})
    # As its engine does.
    cluster.capacity.withdraw("ends")
    cluster.look_again()
    assert cluster.settled(), "others are told"
    assert cluster.places("g") == {"a": 2}


def test_who_waits_for_room_is_woken_by_a_pod_that_was_made_smaller() -> None:
    cluster = Cluster()
    cluster.put_pod(pod("foreign", "a", 4))
    cluster.settled()
    cluster.put_pod(pod("foreign", "a", 1))
    assert cluster.settled()
