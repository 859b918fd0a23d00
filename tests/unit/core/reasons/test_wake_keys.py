"""Wake keys: values that are told apart."""

from itertools import combinations

from webhook.core.notation.amounts import FlavorResource
from webhook.core.reasons.wake_keys import BeforeHeads, BesideHead, Freed, NamespaceFences, Owed, QueueHead, Releasing

CPU = FlavorResource("default", "cpu")
LIKE_NAMED = (
    Freed(1, CPU),
    Releasing(1, CPU),
    BeforeHeads(1),
    NamespaceFences("a"),
    QueueHead("a"),
    BesideHead("a"),
    Owed("a", (), 1, CPU),
)


def test_wake_keys_of_two_kinds_are_never_the_same_whatever_they_name() -> None:
    for one, other in combinations(LIKE_NAMED, 2):
        assert one != other


def test_the_head_of_a_queue_is_never_taken_for_a_gang_of_that_uid() -> None:
    assert len({QueueHead("a"): 1, "a": 2, "QueueHead(queue='a')": 3}) == 3
