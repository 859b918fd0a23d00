"""Whose gang a pod is part of, by its controllers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz.costs import counted
from webhook.cluster.lineage import DEPTH_MAX, Lineage

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


@pytest.mark.parametrize("first", ["an object", "a pod"])
@pytest.mark.parametrize("size", [1, 2, 3, 50])
def test_owners_in_a_circle_are_forgotten_when_the_last_of_them_is_gone(size: int, first: str) -> None:
    """Anybody may write it: whoever was made first is told later that the last one owns it."""
    for start in range(0, size, 7):
        circle = [str(number) for number in range(size)]
        lineage = lineage_of(dict(zip(circle, ["", *circle], strict=False)))
        lineage.put(circle[0], "ns", circle[-1])
        lineage.put("beside", "ns", circle[0])
        lineage.put_pod("pod", circle[size // 2])
        if first == "a pod":
            lineage.drop_pod("pod")
        for uid in [*circle[start:], *circle[:start], "beside"]:
            assert lineage.knows(circle[0])
            lineage.drop(uid)
        if first == "an object":
            assert list(lineage.line(circle[size // 2])), "it controls a pod"
            lineage.drop_pod("pod")
        assert vars(lineage) == vars(Lineage())


def test_a_line_that_goes_on_and_on_is_forgotten_from_its_top() -> None:
    """Of each object but the last one nothing is left, and nobody follows so many owners."""
    lineage = lineage_of({"0": ""})
    for number in range(1, 100):
        lineage.put(str(number), "ns", str(number - 1))
        lineage.drop(str(number - 1))
        assert [*lineage.line(str(number))] == [str(each) for each in range(number, max(number - DEPTH_MAX, -1), -1)]
        assert sum(lineage.knows(str(each)) for each in range(100)) <= DEPTH_MAX + 1
    lineage.drop("99")
    assert vars(lineage) == vars(Lineage())


def test_what_goes_costs_the_same_however_much_of_it_there_is() -> None:
    """Each of these would take millions of steps, were all children or all owners looked at each time."""
    for owner in (lambda _: "top", lambda number: str(number - 1)):
        names = [str(number) for number in range(5_000)]
        lineage = lineage_of({"top": "", **{name: owner(int(name)) for name in names}})
        lineage.put_pod("pod", names[-1])
        lineage.drop("top")
        counted(lambda lineage=lineage, names=names: [lineage.drop(name) for name in names])
        counted(lambda lineage=lineage: lineage.drop_pod("pod"))
        assert vars(lineage) == vars(Lineage())


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
        lineage.drop(uid)
    assert vars(lineage) == vars(Lineage())


class Plain:
    """The same, said the long way: everything is looked at each time."""

    def __init__(self, *, forgets: bool) -> None:
        self.forgets = forgets
        self.owners: dict[str, str] = {}
        self.here: set[str] = set()
        self.pods: dict[str, str] = {}

    def put(self, uid: str, owner: str, *, alone: bool) -> None:
        self.owners[uid] = owner or ("" if alone else self.owners.get(uid, ""))
        self.here.add(uid)
        self.tidy()

    def drop(self, uid: str) -> None:
        self.here.discard(uid)
        self.tidy()

    def put_pod(self, pod: str, controller: str) -> None:
        if controller:
            self.pods[pod] = controller
        self.tidy()

    def drop_pod(self, pod: str) -> None:
        self.pods.pop(pod, None)
        self.tidy()

    def left(self) -> set[str]:
        """Return what is there or has pods."""
        return self.here | set(self.pods.values())

    def tidy(self) -> None:
        kept: set[str] = set()
        level = self.left() if self.forgets else set(self.owners)
        while level := (level & self.owners.keys()) - kept:
            kept |= level
            level = {self.owners[uid] for uid in level}
        self.owners = {uid: owner for uid, owner in self.owners.items() if uid in kept}

    def line(self, uid: str) -> list[str]:
        found = [uid]
        while len(found) < DEPTH_MAX:
            owner = self.owners.get(uid)
            if not owner or (owner in self.owners and place_of(owner) != place_of(uid)):
                break
            found.append(uid := owner)
        return found

    def below(self, uid: str, namespace: str) -> list[str]:
        found, level = [], {uid}
        here = [each for each in self.owners if place_of(each) == namespace]
        for _ in range(DEPTH_MAX):
            found += level
            level = {each for each in here if self.owners[each] in level}
        return sorted(found)


def place_of(uid: str) -> str:
    return PLACES.get(uid, "ns")


FEW = st.sampled_from("abcdef")
CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("put"), FEW, FEW | st.just(""), st.booleans()),
        st.tuples(st.just("drop"), FEW, st.just(""), st.just(False)),
        st.tuples(st.just("put_pod"), st.sampled_from("pq"), FEW | st.just(""), st.just(False)),
        st.tuples(st.just("drop_pod"), st.sampled_from("pq"), st.just(""), st.just(False)),
    ),
    max_size=40,
)


@given(CHANGES)
def test_it_keeps_and_answers_what_looking_at_everything_each_time_does(
    changes: list[tuple[str, str, str, bool]],
) -> None:
    """Owners in circles, owners that change and owners elsewhere included."""
    lineage, plain = Lineage(), Plain(forgets=True)
    gone = [("drop", uid, "", False) for uid in "abcdef"] + [("drop_pod", pod, "", False) for pod in "pq"]
    for what, uid, other, alone in [*changes, *gone]:
        if what == "put":
            lineage.put(uid, place_of(uid), other, alone=alone)
            plain.put(uid, other, alone=alone)
        elif what == "put_pod":
            lineage.put_pod(uid, other)
            plain.put_pod(uid, other)
        else:
            getattr(lineage, what)(uid)
            getattr(plain, what)(uid)
        assert {each for each in "abcdef" if lineage.knows(each)} == plain.owners.keys()
        for each in "abcdef":
            assert list(lineage.line(each)) == plain.line(each)
            for namespace in ("ns", "elsewhere"):
                assert sorted(lineage.below(each, namespace)) == plain.below(each, namespace)
    assert vars(lineage) == vars(Lineage())


MANY = [str(number) for number in range(16)]


@given(st.data())
def test_of_long_lines_nothing_is_forgotten_that_anybody_asks_for(data: st.DataObject) -> None:
    """As far as owners are followed, what was forgotten leads from nothing and to nothing that is left."""
    lineage, plain = Lineage(), Plain(forgets=False)
    back = data.draw(st.lists(st.sampled_from([1] * 12 + [2, 7, 16, -3]), min_size=16, max_size=16))
    for uid, owner in zip(MANY, [MANY[(at - step) % 16] for at, step in enumerate(back)], strict=True):
        lineage.put(uid, "ns", owner)
        plain.put(uid, owner, alone=False)
    for pod in data.draw(st.lists(st.sampled_from(MANY), max_size=3, unique=True)):
        lineage.put_pod(f"pod of {pod}", pod)
        plain.put_pod(f"pod of {pod}", pod)
    for what in data.draw(st.permutations([*MANY, *plain.pods])):
        for each in (lineage, plain):
            (each.drop_pod if what.startswith("pod") else each.drop)(what)
        for uid in MANY:
            assert {*lineage.below(uid, "ns")} & plain.left() == {*plain.below(uid, "ns")} & plain.left()
        for uid in plain.left():
            assert list(lineage.line(uid)) == plain.line(uid)
    assert vars(lineage) == vars(Lineage())


def test_who_was_guessed_right_and_has_its_owner_again_stays_when_the_owner_is_seen() -> None:
    lineage = Lineage()
    lineage.put_pod("pod", "", "owner")
    lineage.put_pod("pod", "owner")
    lineage.put("child", "team", "", made_for="owner")
    lineage.put("child", "team", "owner")
    lineage.put("owner", "team", "")
    assert lineage.controller_of("pod") == "owner"
    assert lineage.belongs("child", "owner")
