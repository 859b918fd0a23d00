"""Objects that are kept as they were read are given in one order, whatever came or went since somebody asked."""

from webhook.cluster.kept_objects import KeptObjects
from webhook.kube.plain import Plain


def stored(name: str, uid: str, says: int = 0) -> Plain:
    return Plain(uid, "ns", name, 1, {"name": name, "says": says})


def told(kept: KeptObjects, *feeds: str) -> list[tuple[str, int]]:
    return [(each["name"], each["says"]) for each in kept.documents(*feeds)]


def test_what_came_changed_or_went_since_is_told_in_order() -> None:
    kept = KeptObjects()
    assert told(kept, "queues") == []
    kept.keep("queues", None, stored("b", "2"))
    kept.keep("queues", None, stored("a", "1"))
    assert told(kept, "queues") == [("a", 0), ("b", 0)]
    kept.keep("queues", stored("a", "1"), stored("a", "1", says=7))
    assert told(kept, "queues") == [("a", 7), ("b", 0)]
    kept.keep("queues", stored("a", "1", says=7), None)
    assert told(kept, "queues") == [("b", 0)]


def test_several_feeds_are_told_together_as_each_of_them_changes() -> None:
    kept = KeptObjects()
    kept.keep("runtimes", None, stored("m", "1"))
    assert told(kept, "runtimes", "cluster-runtimes") == [("m", 0)]
    kept.keep("cluster-runtimes", None, stored("c", "2"))
    assert told(kept, "runtimes", "cluster-runtimes") == [("c", 0), ("m", 0)]
    assert told(kept, "runtimes") == [("m", 0)]
