"""How a plain pod says which group it belongs to, and what is wrong with how it says it."""

from typing import Any

import pytest

from webhook.core.notation import names
from webhook.jobs.plain_pods import group_names

GROUP, COUNT, QUEUE = names.KUEUE_POD_GROUP, names.KUEUE_POD_COUNT, "kueue.x-k8s.io/queue-name"
OTHER = "scheduling.x-k8s.io/pod-group"


def pod(labels: dict[str, Any], annotations: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"labels": labels, "annotations": annotations or {}}, "spec": spec}


@pytest.mark.parametrize("queue", names.QUEUE_LABELS)
def test_a_group_of_kueues_is_joined_with_a_queue_of_either_spelling(queue: str) -> None:
    assert group_names.group_of(pod({GROUP: "ring", queue: "q"})) == "ring"


@pytest.mark.parametrize("labels", [{}, {QUEUE: ""}, {names.PRIORITY_CLASS_LABEL: "urgent"}])
def test_without_a_queue_it_is_named_and_not_joined(labels: dict[str, str]) -> None:
    loose = pod({GROUP: "ring", **labels}, {COUNT: "3"})
    assert group_names.group_of(loose) is None
    assert group_names.kueue_group_named(loose) == "ring"
    assert group_names.size_of_group(loose) == 0


def test_the_annotation_names_it_too_and_counts_first() -> None:
    assert group_names.group_of(pod({QUEUE: "q"}, {GROUP: "ring"})) == "ring"
    assert group_names.group_of(pod({QUEUE: "q", GROUP: "label"}, {GROUP: "annotation"})) == "annotation"


def test_a_pod_group_counts_before_it() -> None:
    assert group_names.group_of(pod({QUEUE: "q", GROUP: "theirs", OTHER: "ring"})) == "ring"


def test_a_pod_template_of_a_job_is_not_asked_for_it() -> None:
    assert GROUP not in names.POD_GROUP_LABELS


@pytest.mark.parametrize(
    ("text", "size"), [("3", 3), ("1", 1), ("0", 0), ("-2", 0), ("three", 0), ("", 0), (None, 0), ("9999999999", 0)]
)
def test_the_size_is_a_number_from_one(text: str | None, size: int) -> None:
    written = pod({QUEUE: "q", GROUP: "ring"}, {} if text is None else {COUNT: text})
    assert group_names.size_of_group(written) == size
    assert (group_names.misgrouped(written) is None) is (size > 0)


@pytest.mark.parametrize(
    ("labels", "annotations", "told"),
    [
        ({GROUP: "ring"}, {}, f"annotation {COUNT}: absent"),
        ({GROUP: "ring"}, {COUNT: "two"}, f"annotation {COUNT}: two: is not a number of pods; write 1 or more"),
        (
            {},
            {COUNT: "2"},
            f"annotation {COUNT}: 2: counts the pods of a group, but no group is named; add label {GROUP}",
        ),
        ({GROUP: "Ring_1"}, {COUNT: "2"}, f"label {GROUP}: Ring_1: is no name"),
        ({}, {GROUP: "a\nb", COUNT: "2"}, "is no name"),
        ({GROUP: "ring", OTHER: "star"}, {COUNT: "2"}, "ring: is a different gang from PodGroup 'star'"),
        ({GROUP: "ring", OTHER: "ring"}, {COUNT: "2"}, None),
        ({GROUP: "ring"}, {COUNT: "2"}, None),
        ({}, {}, None),
        ({OTHER: "star"}, {}, None),
    ],
)
def test_what_kueue_refuses_and_what_would_be_two_gangs_is_told(
    labels: dict[str, str], annotations: dict[str, str], told: str | None
) -> None:
    found = group_names.misgrouped(pod({QUEUE: "q", **labels}, annotations))
    assert found is None if told is None else found is not None and told in str(found)


def test_what_kueue_holds_is_its_own_unless_the_pod_joins_a_pod_group() -> None:
    gates = [{"name": "theirs"}, {"name": names.KUEUE_GATE}]
    assert group_names.held_by_kueue(pod({QUEUE: "q", GROUP: "ring"}, schedulingGates=gates))
    assert not group_names.held_by_kueue(pod({QUEUE: "q", OTHER: "ring"}, schedulingGates=gates))
    assert not group_names.held_by_kueue(pod({QUEUE: "q", GROUP: "ring"}, schedulingGates=gates[:1]))


@pytest.mark.parametrize("odd", [None, 7, "x", ["x"]])
def test_whatever_stands_there_nothing_is_raised(odd: Any) -> None:
    for shape in (
        {"metadata": {"labels": odd, "annotations": odd}, "spec": odd},
        pod({QUEUE: odd, GROUP: odd}, {GROUP: odd, COUNT: odd}, schedulingGates=odd),
        {"metadata": odd},
    ):
        assert group_names.group_of(shape) in (None, "x")
        assert group_names.size_of_group(shape) == 0
        assert not group_names.held_by_kueue(shape)
        group_names.misgrouped(shape)
