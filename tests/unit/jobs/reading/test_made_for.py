"""For which gang an orphan was made."""

import pytest

from tests.unit.jobs.objects_of_kinds import load, record_of
from webhook.core.notation import names


@pytest.mark.parametrize("queue", [None, "gpu-queue"])
def test_our_mark_says_for_which_gang_an_orphan_was_made_and_a_label_where_nobody_else_can_have_written_it(
    queue: str | None,
) -> None:
    """Where it names a queue, its author could have it charged elsewhere by a label, had it passed our mutation."""
    obj = load("job")
    obj["metadata"]["labels"] = {"jobset.sigs.k8s.io/jobset-uid": "set-1"}
    if queue is not None:
        obj["metadata"]["labels"][names.QUEUE_LABELS[0]] = queue
    assert record_of(obj).made_for == "set-1", "its controller made it, or it ran before Tutti came"
    labels = obj["spec"]["template"].setdefault("metadata", {}).setdefault("labels", {})
    for own in (names.GANG_PENDING, obj["metadata"]["uid"]):
        labels[names.GANG_LABEL] = own
        assert record_of(obj).made_for == ("" if queue else "set-1")
    obj["spec"]["template"].setdefault("metadata", {})["labels"] = {names.GANG_LABEL: "set-2"}
    assert record_of(obj).made_for == "set-2"
    obj["metadata"]["ownerReferences"] = [
        {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "s", "uid": "set-2", "controller": True}
    ]
    assert record_of(obj).made_for == "", "its owner tells"


@pytest.mark.parametrize("queue", [None, "gpu-queue"])
@pytest.mark.parametrize("suspend", [False, True])
def test_a_name_says_it_of_what_asks_for_a_queue_while_that_is_suspended(queue: str | None, *, suspend: bool) -> None:
    """Another gang may hold the room of its pods. If it runs, it is charged in the queue that it asks for."""
    obj = load("pytorchjob")
    obj["metadata"]["labels"] = {"workload.codeflare.dev/appwrapper": "top"}
    obj["spec"].setdefault("runPolicy", {})["suspend"] = suspend
    if queue is not None:
        obj["metadata"]["labels"][names.QUEUE_LABELS[0]] = queue
    known = any("=" in name and name.endswith("/top") for name in record_of(obj).named)
    assert known == (suspend or queue is None)
    for replica in obj["spec"]["pytorchReplicaSpecs"].values():
        replica["template"].setdefault("metadata", {})["labels"] = {names.GANG_LABEL: names.GANG_PENDING}
    assert bool(record_of(obj).named) == (queue is None)
