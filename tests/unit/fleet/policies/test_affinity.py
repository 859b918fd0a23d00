"""Which members a policy allows by name and label, and in which order of groups."""

from typing import Any

import pytest

from tests.unit.fleet.policies.counting import matches
from webhook.fleet.policies import propagation
from webhook.fleet.policies.affinity import GROUPS_MAX, TERMS_MAX, Labels
from webhook.fleet.policies.propagation import Propagation, read

EAST = {"matchLabels": {"zone": "east"}}
NOT_WEST = {"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": ["west"]}]}
MEMBERS: dict[str, Labels] = {"a": {"zone": "east"}, "b": {"zone": "west"}, "c": {}, "file": None}


def placed(**placement: Any) -> Propagation:
    return read({"metadata": {"name": "p", "namespace": "team-a"}, "spec": {"placement": placement}})


def allowed(found: Propagation) -> str:
    return " ".join(name for name, labels in MEMBERS.items() if not found.why_not(name, labels))


def ranked(found: Propagation) -> dict[str, int]:
    held = {name: labels for name, labels in MEMBERS.items() if not found.why_not(name, labels)}
    return {name: found.rank(name, labels) for name, labels in held.items()}


@pytest.mark.parametrize(
    ("affinity", "members"),
    [
        ({}, "a b c file"),
        (None, "a b c file"),
        ({"clusterNames": []}, "a b c file"),
        ({"clusterNames": ["a", "file"]}, "a file"),
        ({"labelSelector": {}}, "a b c file"),
        ({"labelSelector": EAST}, "a"),
        ({"labelSelector": NOT_WEST}, "a c"),
        ({"labelSelector": NOT_WEST, "exclude": ["a"]}, "c"),
        ({"labelSelector": EAST, "clusterNames": ["b", "file"]}, ""),
    ],
)
def test_names_and_labels_must_both_fit(affinity: Any, members: str) -> None:
    found = placed(clusterAffinity=affinity)
    assert (allowed(found), found.problems) == (members, ())


@pytest.mark.parametrize(
    "affinity",
    [
        {"clusterNames": "a"},
        {"labelSelector": {"matchLabels": {"not a key": "x"}}},
        {"labelSelector": {"matchExpressions": [{"key": "zone", "operator": "Near"}]}},
        {"labelSelector": {"matchExpressions": [{"key": "z", "operator": "NotIn", "values": ["x"] * TERMS_MAX}]}},
        ["a"],
    ],
)
def test_what_cannot_be_read_allows_nobody_and_is_said(affinity: Any) -> None:
    found = placed(clusterAffinity=affinity)
    assert allowed(found) == ""
    assert found.problems


def test_who_is_left_out_by_its_labels_is_told_so() -> None:
    found = placed(clusterAffinity={"clusterNames": ["b", "file"], "labelSelector": EAST})
    said = "is left out by PropagationPolicy team-a/p"
    assert found.why_not("a", MEMBERS["a"]) == said
    assert found.why_not("b", MEMBERS["b"]) == f"{said}: the labels of MultiKueueCluster b do not match"
    asks = "it asks for labels, and there is no MultiKueueCluster file to have any"
    assert found.why_not("file", None) == f"{said}: {asks}"


def test_the_first_group_that_a_member_is_in_counts_and_who_is_in_none_is_left_out() -> None:
    near, far = {"affinityName": "near", "labelSelector": EAST}, {"affinityName": "far", "clusterNames": ["a", "c"]}
    found = placed(clusterAffinities=[near, far])
    assert (ranked(found), found.problems) == ({"a": 0, "c": 1}, ())
    assert ranked(placed(clusterAffinities=[{"clusterNames": ["c"]}, {"exclude": ["b"]}])) == {
        "a": 1,
        "c": 0,
        "file": 1,
    }


@pytest.mark.parametrize("several", [None, []])
def test_without_groups_every_member_will_do(several: Any) -> None:
    found = placed(clusterAffinities=several)
    assert (found.groups, found.problems) == (None, ())
    assert ranked(found) == dict.fromkeys(MEMBERS, 0)


@pytest.mark.parametrize("several", ["near", [None], [3], {"near": {}}])
def test_groups_that_cannot_be_read_allow_nobody(several: Any) -> None:
    assert allowed(placed(clusterAffinities=several)) == ""


def test_groups_have_no_effect_beside_the_one_affinity_which_is_said() -> None:
    found = placed(clusterAffinity={"clusterNames": ["a"]}, clusterAffinities=[{"clusterNames": ["b"]}])
    assert allowed(found) == "a"
    (problem,) = found.problems
    assert problem.path == "/spec/placement/clusterAffinities"
    assert "beside clusterAffinity" in str(problem)


def test_what_has_no_effect_in_a_group_is_named_and_no_more_groups_are_looked_at_than_a_few() -> None:
    group = {"affinityName": "near", "fieldSelector": {}}
    assert [each.path for each in placed(clusterAffinities=[group]).problems] == [
        "/spec/placement/clusterAffinities/0/fieldSelector"
    ]
    assert [each.path for each in placed(clusterAffinity=group).problems] == [
        "/spec/placement/clusterAffinity/affinityName",
        "/spec/placement/clusterAffinity/fieldSelector",
    ]
    many = placed(clusterAffinities=[{"clusterNames": ["a"]}] * GROUPS_MAX + [{"clusterNames": ["b"]}])
    assert (allowed(many), [each.path for each in many.problems]) == ("a", ["/spec/placement/clusterAffinities"])


def test_labels_are_compared_once_until_a_member_has_others(monkeypatch: pytest.MonkeyPatch) -> None:
    found, members = (
        placed(clusterAffinities=[{"labelSelector": EAST}] * GROUPS_MAX),
        {**MEMBERS, "d": {"zone": "west"}},
    )

    def looks() -> list[str]:
        return [f"{name}{found.rank(name, each)}" for name, each in members.items() if not found.why_not(name, each)]

    compared = matches(monkeypatch)
    assert looks() == ["a0"]
    assert len(compared) == 1 + 3 * GROUPS_MAX, "the first group has a, none has b, c or d; file has no labels"
    assert [looks() for _ in range(100)] == [["a0"]] * 100
    assert len(compared) == 1 + 3 * GROUPS_MAX
    members |= {"a": {"zone": "west"}, "d": {"zone": "east"}}
    assert looks() == ["d0"]
    members |= {"d": None, "file": {"zone": "east"}}
    assert looks() == ["file0"]


def test_members_that_come_and_go_take_no_room_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(propagation, "PLACES_MAX", 3)
    found = placed(clusterAffinity={"labelSelector": EAST})
    for number in range(100):
        assert found.why_not(f"m{number}", {"zone": "west"})
        assert not found.why_not("stays", EAST["matchLabels"])
        assert len(found._places) <= 3
