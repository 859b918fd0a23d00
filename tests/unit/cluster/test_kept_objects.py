"""Objects that are kept as they were read are given in one order, whatever came or went since somebody asked."""

import orjson
import pytest

from webhook.cluster.kept_objects import KeptObjects
from webhook.cluster.view import View
from webhook.config import Config
from webhook.jobs.pod_sets.train_job import runtime_of
from webhook.kube.plain import Plain, plain


def stored(name: str, uid: str, says: int = 0) -> Plain:
    return Plain(uid, "ns", name, 1, orjson.dumps({"name": name, "says": says}))


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


@pytest.mark.parametrize("place", [{}, {"namespace": "ns"}], ids=["of the cluster", "of a namespace"])
def test_a_train_job_is_read_with_the_runtime_that_it_names(place: dict[str, str]) -> None:
    """One of the whole cluster has no namespace, as the API server writes it."""
    kind = "TrainingRuntime" if place else "ClusterTrainingRuntime"
    metadata = {"name": "torch-distributed", "uid": "1", "resourceVersion": "7", **place}
    runtime = {"kind": kind, "metadata": metadata, "spec": {"mlPolicy": {"numNodes": 3}}}
    kept = KeptObjects()
    kept.keep(f"{kind.lower()}s", None, plain(orjson.dumps(runtime)))
    reference = {"runtimeRef": {"kind": kind, "name": "torch-distributed"}}
    job = {"metadata": {"namespace": "ns"}, "spec": reference}
    assert runtime_of(job, kept.read_context(View(), Config()))["spec"] == runtime["spec"]


def test_what_an_object_says_is_read_once_until_it_says_something_else() -> None:
    kept, first, second = KeptObjects(), stored("a", "1"), stored("a", "1", says=7)
    kept.keep("queues", None, first)
    assert kept.document("queues", first) is kept.documents("queues")[0]
    kept.keep("queues", first, second)
    assert kept.document("queues", second) == {"name": "a", "says": 7}
    kept.keep("queues", second, None)
    assert told(kept, "queues") == []


def test_a_change_of_a_status_alone_means_nothing_else_whether_somebody_had_asked_or_not() -> None:
    def queue(used: int, quota: int) -> Plain:
        document = {"kind": "ClusterQueue", "metadata": {}, "spec": {"quota": quota}, "status": {"used": used}}
        return Plain("1", "", "a", used, orjson.dumps(document))

    for asks in (False, True):
        kept, first = KeptObjects(), queue(0, 4)
        assert kept.keep_changed("queues", None, first)
        for quota, used, changed in ((4, 1, False), (5, 2, True), (5, 3, False)):
            if asks:
                kept.documents("queues")
            then = queue(used, quota)
            assert kept.keep_changed("queues", first, then) is changed
            assert kept.documents("queues")[0]["status"] == {"used": used}
            first = then
        assert kept.keep_changed("queues", first, None)
        assert kept.documents("queues") == []
