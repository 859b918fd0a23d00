"""What one namespace is told names no job of another, and everything else stays."""

import pytest

from webhook.core.reasons.neighbours import ANY_NAMESPACE, SOMEBODY, reason_for, text_for
from webhook.core.reasons.reasons import Code, Holder, Reason

NAMESPACES = ("team-a", "team-b", "n")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("could stop team-b/train and team-a/mine", f"could stop {SOMEBODY} and team-a/mine"),
        ("(team-b/train-1.x), n/x; 4 nvidia.com/gpu", f"({SOMEBODY}), {SOMEBODY}; 4 nvidia.com/gpu"),
        (
            "ResourceQuota team-a/hard, 4/8 and a.n/b, unknown/name",
            "ResourceQuota team-a/hard, 4/8 and a.n/b, unknown/name",
        ),
        ("preempted by team-b/train.", f"preempted by {SOMEBODY}."),
    ],
)
def test_names_of_other_namespaces_go_and_all_else_stays(text: str, told: str) -> None:
    assert text_for(text, "team-a", NAMESPACES) == told


def test_where_no_namespace_is_known_whatever_reads_like_a_name_goes() -> None:
    told = text_for("behind team-b/train, team-a/mine; 4/8 nvidia.com/gpu, x/y", "team-a", ANY_NAMESPACE)
    assert told == f"behind {SOMEBODY}, team-a/mine; 4/8 nvidia.com/gpu, {SOMEBODY}"


def test_what_other_namespaces_hold_is_one_amount() -> None:
    holders = (Holder("team-a/mine", 1), Holder("team-b/x", 2), Holder("n/y", 3), Holder("loose pods", 4))
    reason = Reason(Code.WAITING_FOR_QUOTA, "behind team-b/x", "research", "cpu", holders=holders, help="n/y ends")
    told = reason_for(reason, "team-a", NAMESPACES)
    assert told.holders == (Holder("team-a/mine", 1), Holder("loose pods", 4), Holder("other namespaces", 5))
    assert not any(name in str(told) for name in ("team-b", "n/y", "/x"))
    assert told.where == "research"
