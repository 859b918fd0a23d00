"""Whose gang a pod is part of, by its controllers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.cluster.lineage import Lineage

CHAIN = {"train": "", "set": "train", "child": "set", "stranger": ""}


def lineage_of(owners: dict[str, str]) -> Lineage:
    lineage = Lineage()
    for uid, owner in owners.items():
        lineage.put(uid, "ns", owner)
    return lineage


@pytest.mark.parametrize(
    ("controller", "gang", "verdict"),
    [
        ("train", "train", True),
        ("child", "train", True),
        ("stranger", "train", False),
        ("never seen", "train", None),
        ("", "train", None),
    ],
)
def test_a_pod_is_of_the_gang_that_its_controllers_lead_to(controller: str, gang: str, verdict: bool | None) -> None:
    assert lineage_of(CHAIN).belongs(controller, gang) is verdict


def test_nothing_is_said_while_an_owner_in_between_was_not_seen() -> None:
    assert lineage_of({"child": "set"}).belongs("child", "train") is None


def test_what_is_gone_is_remembered_while_pods_of_it_are_left() -> None:
    lineage = lineage_of(CHAIN)
    lineage.put_pod("pod", "child")
    for uid in ("train", "set", "child"):
        lineage.drop(uid)
    assert lineage.belongs("child", "train") is True
    assert list(lineage.pods_below("train", "ns")) == ["pod"]
    assert lineage.put_pod("pod", "") == "child", "it was orphaned since"
    assert list(lineage.line("child")) == ["child", "set", "train"]
    lineage.drop_pod("pod")
    assert lineage.belongs("child", "train") is None, "nothing is kept of what is gone altogether"


@pytest.mark.parametrize("top_first", [True, False], ids=["top first", "bottom first"])
def test_a_line_of_thousands_of_owners_is_forgotten_with_the_last_pod(top_first: bool) -> None:
    """Anybody may write it, and finalizers keep its objects until they are to go."""
    line = [str(number) for number in range(5_000)]
    lineage = lineage_of(dict(zip(line, ["gang", *line], strict=False)))
    lineage.put("gang", "elsewhere", "")
    lineage.put_pod("pod", line[-1])
    for uid in line if top_first else reversed(line):
        lineage.drop(uid)
        assert list(lineage.below("gang", "elsewhere")) == ["gang"]
    lineage.drop_pod("pod")
    lineage.drop("gang")
    assert vars(lineage) == vars(Lineage())


def test_what_is_gone_is_remembered_for_what_goes_over_to_it() -> None:
    lineage = lineage_of(CHAIN)
    lineage.put_pod("pod", "child")
    for uid in ("train", "set", "child"):
        lineage.drop(uid)
    lineage.put_pod("pod", "set")
    assert list(lineage.line("set")) == ["set", "train"]
    lineage.put("other", "ns", "set")
    lineage.drop_pod("pod")
    lineage.put("other", "ns", "train")
    assert lineage.knows("train")
    assert not lineage.knows("set")


def test_an_orphan_belongs_to_the_gang_that_it_was_part_of_unless_it_is_one_itself() -> None:
    lineage = lineage_of(CHAIN)
    lineage.put_pod("pod", "child")
    assert not lineage.put("child", "ns", ""), "nothing has changed"
    assert list(lineage.pods_below("train", "ns")) == ["pod"]
    assert lineage.put("child", "ns", "", alone=True)
    assert list(lineage.pods_below("train", "ns")) == []
    assert lineage.belongs("child", "child") is True


def test_labels_tell_for_whom_an_orphan_was_made_until_that_one_turns_up() -> None:
    lineage = Lineage()
    lineage.put("child", "ns", "", made_for="train")
    lineage.put_pod("pod", "child")
    assert lineage.put_pod("other", "", "train") == "train"
    assert sorted(lineage.pods_below("train", "ns")) == ["other", "pod"]
    lineage.put("child", "ns", "")
    assert lineage.belongs("child", "train") is True, "it is the same orphan"
    lineage.put("train", "ns", "")
    assert list(lineage.pods_below("train", "ns")) == []
    lineage.put("child", "ns", "", made_for="train")
    assert lineage.belongs("child", "train") is False, "anybody may write labels"


def test_pods_outlive_their_gang_below_what_was_orphaned_and_nothing_else() -> None:
    lineage = Lineage()
    lineage.put("own", "ns", "")
    lineage.put("orphan", "ns", "", made_for="gone")
    lineage.put("collected", "ns", "gone")
    assert [lineage.outlives(each) for each in ("own", "orphan", "collected", "never seen")] == [
        True,
        True,
        False,
        False,
    ]
    lineage.put_pod("pod", "own")
    lineage.drop("own")
    assert not lineage.outlives("own")


@pytest.mark.parametrize("first", ["owner", "child"])
def test_an_owner_in_another_namespace_is_none(first: str) -> None:
    """Kubernetes takes such a reference for one to something that is gone, and anybody may write it."""
    lineage = Lineage()
    lineage.put_pod("pod", "child")
    for uid in ("owner", "child") if first == "owner" else ("child", "owner"):
        lineage.put(uid, {"owner": "ns"}.get(uid, "elsewhere"), {"child": "owner"}.get(uid, ""))
    assert list(lineage.line("child")) == ["child"]
    assert list(lineage.line("child", "ns")) == [], "nor is it the controller of anything there"
    assert list(lineage.below("owner", "ns")) == ["owner"]
    assert lineage.belongs("child", "owner") is False
    assert lineage.outlives("child"), "nothing above it is collected"
    assert list(lineage.pods_below("child", "elsewhere")) == ["pod"]


def test_nor_was_anything_made_for_a_gang_elsewhere_that_nobody_saw() -> None:
    lineage = Lineage()
    lineage.put("claims", "elsewhere", "", made_for="gone")
    lineage.put("orphan", "ns", "", made_for="gone")
    assert list(lineage.below("gone", "ns")) == ["gone", "orphan"]


UIDS = st.sampled_from(["a", "b", "c", "d"])
PLACES = {"d": "elsewhere"}
EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), UIDS, UIDS | st.just("")),
        st.tuples(st.just("drop"), UIDS, st.just("")),
        st.tuples(st.just("put_pod"), st.sampled_from(["p", "q"]), UIDS | st.just("")),
        st.tuples(st.just("guess"), UIDS, UIDS),
        st.tuples(st.just("guess_pod"), st.sampled_from(["p", "q"]), UIDS),
        st.tuples(st.just("drop_pod"), st.sampled_from(["p", "q"]), st.just("")),
    ),
    max_size=30,
)


@given(EVENTS)
def test_whatever_comes_and_goes_it_answers_and_in_the_end_forgets(events: list[tuple[str, str, str]]) -> None:
    """Owners in circles included: anybody may write such references."""
    lineage = Lineage()
    for what, uid, owner in events:
        if what == "guess":
            lineage.put(uid, PLACES.get(uid, "ns"), "", made_for=owner)
        elif what == "guess_pod":
            lineage.put_pod(uid, "", owner)
        elif what == "put":
            lineage.put(uid, PLACES.get(uid, "ns"), owner)
        else:
            getattr(lineage, what)(*((uid, owner) if what == "put_pod" else (uid,)))
        assert lineage.belongs(uid, "a") in (True, False, None)
        assert set(lineage.pods_below("a", "ns")) <= {"p", "q"}
        assert PLACES.keys().isdisjoint(lineage.below("a", "ns"))
        assert next(lineage.line(uid)) == uid
        assert lineage.outlives(uid) in (True, False)
    for pod in ("p", "q"):
        lineage.drop_pod(pod)
    for uid in "abcd":
        lineage.put(uid, "ns", "", alone=True)
    for uid in "abcd":
        lineage.drop(uid)
    assert vars(lineage) == vars(Lineage())
