"""Which names a job is offered in place of a queue that nobody knows."""

from collections.abc import Iterator
from itertools import product
from typing import Any

from webhook.core.model.policy import QUEUES_SHOWN, LocalQueue, Policy, Queue


class Unwalked(dict[Any, Any]):
    """A map that is asked by key alone, once it has been noted."""

    walked = 0

    def __iter__(self) -> Iterator[Any]:
        self.walked += 1
        return super().__iter__()

    def items(self) -> Any:
        self.walked += 1
        return super().items()

    def values(self) -> Any:
        self.walked += 1
        return super().values()


def queues(*names: str, dialect: str = "elastic-quota-tree") -> dict[str, Queue]:
    return {name: Queue(name, dialect) for name in names}


def local_queues(*places: tuple[str, str]) -> dict[tuple[str, str], LocalQueue]:
    return {place: LocalQueue(*place, "all") for place in places}


def offered(policy: Policy, namespace: str) -> list[str]:
    _, fix = policy.why_no_queue(namespace, "unknown")
    _, known, names = fix.partition("; known here: ")
    return names.split(", ") if known else []


def test_an_unknown_queue_is_answered_without_a_look_at_those_of_other_namespaces() -> None:
    spaces = [f"team-{number}" for number in range(1_000)]
    local, own = Unwalked(local_queues(*product(spaces, ["a", "b"]))), Unwalked({space: space for space in spaces})
    policy = Policy(queues=Unwalked(queues(*spaces)), local_queues=local, namespace_queues=own)
    assert isinstance(policy.queues, Unwalked)
    before = local.walked, own.walked, policy.queues.walked
    assert offered(policy, "team-7") == ["a", "b", "team-7"]
    assert offered(policy, "elsewhere") == []
    assert policy.queue_of("team-7", "team-8") is None
    assert (local.walked, own.walked, policy.queues.walked) == before


def test_the_queues_of_the_namespace_are_offered_before_those_that_are_open_to_all() -> None:
    policy = Policy(
        queues=queues("z", "b", "own", "theirs", "alias") | queues("kueue's", dialect="kueue"),
        local_queues=local_queues(("team", "y"), ("team", "b"), ("other", "x")),
        namespace_queues={"team": "own", "other": "theirs"},
        queue_aliases={"alias": "z"},
    )
    assert offered(policy, "team") == ["b", "y", "own", "z"]
    assert offered(policy, "other") == ["x", "b", "theirs", "z"]
    assert offered(policy, "third") == ["b", "z"]


def test_each_name_is_offered_once_and_leads_to_a_queue_or_a_local_queue() -> None:
    names = ("a", "b", "c", "d", "e", "f", "g")
    for own, alias, count in product((None, *names), (None, *names), range(len(names))):
        policy = Policy(
            queues=queues(*names),
            local_queues=local_queues(*(("team", name) for name in names[:count:2])),
            namespace_queues={} if own is None else {"team": own, "other": "c"},
            queue_aliases={} if alias is None else {alias: "d"},
        )
        found = offered(policy, "team")
        locals_ = [name for name in found if ("team", name) in policy.local_queues]
        reached = [name for name in found if name not in locals_]
        assert (locals_, reached) == (sorted(locals_), sorted(reached))
        assert [*locals_, *reached] == found
        assert all(policy.queue_of("team", name) == name for name in reached)
        others = [name for name in names if name not in found and policy.queue_of("team", name) == name]
        assert len(set(found)) == len(found) <= QUEUES_SHOWN
        assert not others or len(found) == QUEUES_SHOWN
