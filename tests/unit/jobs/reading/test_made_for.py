"""For which gang an orphan was made."""

import pytest

from tests.unit.jobs.objects_of_kinds import load, record_of
from webhook.core.notation import names


@pytest.mark.parametrize("queue", [None, "gpu-queue"])
def test_our_mark_says_for_which_gang_an_orphan_was_made_and_a_label_only_where_it_names_no_queue(
    queue: str | None,
) -> None:
    """Where it names one, anybody could have it charged elsewhere by a label that anybody may write."""
    obj = load("job")
    obj["metadata"]["labels"] = {"jobset.sigs.k8s.io/jobset-uid": "set-1"}
    if queue is not None:
        obj["metadata"]["labels"][names.QUEUE_LABELS[0]] = queue
    assert record_of(obj).made_for == ("" if queue else "set-1")
    obj["spec"]["template"].setdefault("metadata", {})["labels"] = {names.GANG_LABEL: "set-2"}
    assert record_of(obj).made_for == "set-2"
    obj["metadata"]["ownerReferences"] = [
        {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "s", "uid": "set-2", "controller": True}
    ]
    assert record_of(obj).made_for == "", "its owner tells"
