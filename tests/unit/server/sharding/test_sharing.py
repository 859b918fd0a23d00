"""Two replicas share the headroom of a namespace: one owns it, the other asks; together they never grant too much."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.server.reviews import (
    ALICE,
    JOB_CONTROLLER,
    Answered,
    pod,
    price,
    record,
    reservation,
    review,
    view,
    with_ledger,
    with_quota,
)
from tests.unit.server.wire_level import post, served
from webhook.cluster.view import View
from webhook.server.handler import ReviewHandler
from webhook.server.pods.tally import Tally
from webhook.server.sharding.forward import Forwarder
from webhook.server.sharding.hop import HopKeys
from webhook.server.sharding.ownership import Ownership, owner_of

NAMES = st.lists(st.text("abcdef0123456789-", min_size=1, max_size=8), min_size=1, max_size=6, unique=True)
NAMESPACES = st.text("abcdefgh-", min_size=1, max_size=10)


# -- who owns a namespace


@given(NAMES, NAMESPACES, st.randoms())
def test_replicas_that_see_the_same_peers_agree(peers: list[str], namespace: str, chance: random.Random) -> None:
    shuffled = peers.copy()
    chance.shuffle(shuffled)
    assert owner_of(namespace, peers) == owner_of(namespace, shuffled)


@given(NAMES.filter(lambda peers: len(peers) > 1), NAMESPACES, st.data())
def test_the_departure_of_another_replica_moves_nothing(peers: list[str], namespace: str, data: st.DataObject) -> None:
    owner = owner_of(namespace, peers)
    gone = data.draw(st.sampled_from([peer for peer in peers if peer != owner]))
    assert owner_of(namespace, [peer for peer in peers if peer != gone]) == owner


def test_namespaces_spread_over_the_replicas() -> None:
    owners = [owner_of(f"team-{number}", ["a", "b", "c"]) for number in range(300)]
    assert all(70 <= owners.count(peer) <= 130 for peer in "abc")


@given(st.lists(st.sets(st.sampled_from("bcd")), min_size=1, max_size=6), NAMESPACES, st.floats(0.01, 2))
def test_a_new_owner_waits_until_the_old_ones_grants_have_been_seen(
    lives: list[set[str]], namespace: str, pace: float
) -> None:
    """At any moment, whoever decides without waiting has been the owner for the whole settling time."""
    mine, now = Ownership("a"), 0.0
    history: list[tuple[float, bool]] = [(float("-inf"), True)]
    for live in lives:
        now += pace
        mine.set_live(live, now)
        history.append((now, mine.owner(namespace) == "a"))
        for later in (now, now + 0.2, now + 0.6):
            if mine.owner(namespace) == "a" and mine.unsettled_seconds(namespace, later) == 0:
                since = next((t for t, own in reversed(history) if not own), None)
                assert since is None or _regained(history, since) + 0.5 <= later


def _regained(history: list[tuple[float, bool]], since: float) -> float:
    return min(t for t, own in history if own and t > since)


def test_a_replica_that_has_just_started_waits_too() -> None:
    mine = Ownership("a", started_seconds=100.0)
    assert mine.unsettled_seconds("team-a", 100.1) == pytest.approx(0.4)
    assert mine.unsettled_seconds("team-a", 100.6) == 0


def test_a_replica_that_joins_settles_from_when_the_others_pass_reviews_to_it() -> None:
    mine = Ownership("a", started_seconds=100.0, joining=True)
    mine.set_live({"b", "c"}, 101.0)
    assert mine.live == {"a", "b", "c"}
    namespaces = [f"team-{number}" for number in range(30)]
    assert all(mine.owner(namespace) == owner_of(namespace, "bc") for namespace in namespaces)
    mine.join(107.0)
    mine.join(109.0)
    assert any(mine.owner(namespace) == "a" for namespace in namespaces)
    for namespace in namespaces:
        if mine.owner(namespace) == "a":
            assert mine.unsettled_seconds(namespace, 107.1) == pytest.approx(0.4)
            assert mine.unsettled_seconds(namespace, 107.6) == 0


def test_a_replica_to_which_nobody_passes_anything_joins_once_the_others_must_know_of_it() -> None:
    mine = Ownership("a", started_seconds=100.0, joining=True)
    mine.set_live({"b"}, 101.0)
    for now in (103.0, 104.0, 105.0):
        mine.listed(now)
        assert mine.owner("team-a") == "b"
    mine.listed(105.6)
    assert {mine.owner(f"team-{number}") for number in range(30)} == {"a", "b"}


def test_a_replica_that_joins_and_finds_nobody_decides_itself() -> None:
    mine = Ownership("a", started_seconds=100.0, joining=True)
    assert mine.owner("team-a") == "a"
    assert mine.unsettled_seconds("team-a", 100.1) == pytest.approx(0.4)
    mine.set_live({"b"}, 101.0)
    mine.set_live((), 102.0)
    assert mine.owner("team-a") == "a"
    assert mine.unsettled_seconds("team-a", 102.1) == pytest.approx(0.4)


# -- what one replica let pass


@given(st.lists(st.tuples(st.sampled_from(["pass", "see", "wait"]), st.integers(0, 7)), max_size=40))
def test_the_tally_holds_exactly_what_was_let_pass_and_is_neither_seen_nor_old(steps: list[tuple[str, int]]) -> None:
    seen: set[str] = set()
    expected: dict[str, float] = {}
    tally, now = Tally(lambda namespace, uid: record(uid) if uid in seen else None), 0.0
    tally.saw("team-a", "made later", 1003.0)
    for step, number in steps:
        uid = f"pod-{number}"
        if step == "pass" and uid not in seen:
            tally.add("team-a", uid, price(), now, 1000.0, gang="job-1", pod_set="main")
            expected[uid] = now + 5.0
        elif step == "see":
            seen.add(uid)
            expected.pop(uid, None)
        else:
            now += number
        live = {uid for uid, until in expected.items() if until > now}
        assert tally.of_pod_set("team-a", "job-1", "main", now) == len(live)
        assert tally.of_pod_set("team-b", "job-1", "main", now) == 0


def test_what_was_let_pass_counts_for_as_long_as_the_watch_is_silent() -> None:
    heard = [10.0]
    tally = Tally(lambda namespace, uid: None, lambda: heard[0])
    tally.add("team-a", "pod", price(), 10.0, gang="job-1", pod_set="main")
    assert tally.of_pod_set("team-a", "job-1", "main", 100.0) == 1, "the watch may be dead, and the pod there"
    heard[0] = 11.0
    assert tally.of_pod_set("team-a", "job-1", "main", 100.0) == 1, "that may have been on its way before"
    heard[0] = 12.0
    assert tally.of_pod_set("team-a", "job-1", "main", 100.0) == 0, "the pod was not stored"


def test_what_was_let_pass_counts_for_as_long_as_the_watch_is_behind() -> None:
    tally = Tally(lambda namespace, uid: None, lambda: inf)

    def waits(now: float) -> bool:
        tally.add("team-a", "pod", price(), 10.0, 1000.0, gang="job-1", pod_set="main")
        return tally.of_pod_set("team-a", "job-1", "main", now) == 1

    assert waits(24.9), "the watch speaks, but of nothing that was made later"
    assert not waits(25.0), "nothing was made later, and no watch is so far behind"
    tally.saw("team-b", "another", 1002.0)
    assert waits(24.9), "both may be of the same second, by clocks that differ"
    tally.saw("team-b", "another", 1003.0)
    tally.saw("team-b", "an old one", 990.0)
    assert waits(14.9), "a pod made later may be stored first"
    assert not waits(15.0)


# -- two replicas


@dataclass
class Cluster:
    """Two served replicas that watch one world, each with a delay of its own."""

    handlers: dict[str, ReviewHandler] = field(default_factory=dict)
    urls: dict[str, str] = field(default_factory=dict)
    forwarders: dict[str, Forwarder] = field(default_factory=dict)

    def views(self) -> list[View]:
        return [handler.view for handler in self.handlers.values()]


@asynccontextmanager
async def replicas(*views: View) -> AsyncIterator[Cluster]:
    cluster = Cluster()
    for name, seen in zip("ab", views, strict=True):
        forwarder = Forwarder(Ownership(name, settle_seconds=0.02), lambda: cluster.urls)
        forwarder.hop.renew(b"the key that both serve with")
        cluster.forwarders[name] = forwarder
        cluster.handlers[name] = ReviewHandler(seen, forwarder=forwarder)
    async with served(cluster.handlers["a"]) as first, served(cluster.handlers["b"]) as second:
        cluster.urls = {
            "a": f"http://127.0.0.1:{first.listener.port}",
            "b": f"http://127.0.0.1:{second.listener.port}",
        }
        for forwarder in cluster.forwarders.values():
            await forwarder.check_peers()
        try:
            yield cluster
        finally:
            for forwarder in cluster.forwarders.values():
                await forwarder.close()


async def ask(cluster: Cluster, replica: str, uid: str, *, gang: bool, seconds: float = 2.0) -> Answered:
    if gang:
        body = review(pod(uid, uid=uid, gang="job-1", version="1.1"), user=JOB_CONTROLLER)
    else:
        body = review(pod(uid, uid=uid), user=ALICE)
    return Answered(*await cluster.handlers[replica].review("/validate/pods", body, seconds))


class Neighbour(Forwarder):
    """Reaches the other replica without sockets, so that no load of the machine makes one seem silent."""

    def __init__(self, me: str, handlers: dict[str, ReviewHandler]) -> None:
        super().__init__(Ownership(me, settle_seconds=0.02), lambda: {name: name for name in handlers})
        self.ownership.set_live("ab", 0.0)
        self._gates = handlers

    async def _post(self, url: str, path: str, body: bytes, timeout_seconds: float) -> tuple[int, bytes]:
        await asyncio.sleep(0.001)
        return await self._gates[url].review(path, body, timeout_seconds, hopped=True)


@pytest.mark.virtual_time
@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("gang", [False, True], ids=["loose", "gang"])
async def test_two_replicas_never_grant_more_than_hard(seed: int, gang: bool) -> None:
    chance = random.Random(seed)
    room = chance.randint(1, 6)

    def world() -> View:
        seen = with_quota(view(), gpu=room)
        return with_ledger(seen, reservation(count=room)) if gang else seen

    cluster = Cluster()
    for name in "ab":
        cluster.handlers[name] = ReviewHandler(world(), forwarder=Neighbour(name, cluster.handlers))

    async def submit(number: int) -> bool:
        await asyncio.sleep(chance.random() * 0.01)
        answer = await ask(cluster, chance.choice("ab"), f"pod-{number}", gang=gang)
        if answer.allowed:
            for seen in cluster.views():
                await asyncio.sleep(chance.random() * 0.01)
                seen.fences.put_pod(record(f"pod-{number}", gang="job-1" if gang else None))
        return answer.allowed

    granted = await asyncio.gather(*(submit(number) for number in range(room * 3)))
    assert sum(granted) == room


@pytest.mark.virtual_time
@pytest.mark.parametrize("seed", range(5))
async def test_two_replicas_never_let_pods_grow_past_hard(seed: int) -> None:
    chance, cluster = random.Random(seed), Cluster()
    for name in "ab":
        seen = with_quota(view(), gpu=12)
        for number in range(4):
            seen.fences.put_pod(record(f"pod-{number}"))
        cluster.handlers[name] = ReviewHandler(seen, forwarder=Neighbour(name, cluster.handlers))

    async def grow(number: int) -> bool:
        await asyncio.sleep(chance.random() * 0.01)
        old, new = (pod(uid=f"pod-{number}", gpu=gpu) for gpu in "15")
        body = review(new, old=old, operation="UPDATE", subresource="resize")
        handler = cluster.handlers[chance.choice("ab")]
        return Answered(*await handler.review("/validate/pods", body, 2.0)).allowed

    assert sum(await asyncio.gather(*map(grow, range(4)))) == 2


@pytest.mark.virtual_time
async def test_who_takes_over_from_a_replica_that_is_listed_no_more_waits_until_its_grants_are_seen() -> None:
    """One that ends leaves the list of endpoints before the next look at who is alive."""
    cluster = Cluster()
    for name in "ab":
        cluster.handlers[name] = ReviewHandler(with_quota(view(), gpu=1), forwarder=Neighbour(name, cluster.handlers))
    leaving = owner_of("team-a", "ab")
    staying = "b" if leaving == "a" else "a"
    assert (await ask(cluster, leaving, "pod-1", gang=False)).allowed
    del cluster.handlers[leaving]
    asyncio.get_running_loop().call_later(0.01, cluster.handlers[staying].view.fences.put_pod, record("pod-1"))
    assert not (await ask(cluster, staying, "pod-2", gang=False)).allowed


async def test_a_review_that_was_passed_on_is_decided_where_it_arrives() -> None:
    async with replicas(with_quota(view(), gpu=1), with_quota(view(), gpu=1)) as cluster:
        body = review(pod(), user=ALICE)
        for handler in cluster.handlers.values():
            status, answer = await handler.review("/validate/pods", body, 2.0, hopped=True)
            assert Answered(status, answer).allowed
            assert len(handler.tally.pending("team-a", asyncio.get_running_loop().time())) == 1


HOP = "/validate/pods?timeout=2s"


async def test_a_hop_is_taken_from_a_replica_and_from_nobody_else() -> None:
    handler = ReviewHandler(with_quota(view(), gpu=8), forwarder=Forwarder(Ownership("a"), dict))
    assert handler.forwarder is not None
    handler.forwarder.hop.renew(b"serving key")
    body, other = review(pod(), user=ALICE), review(pod(uid="pod-2"), user=ALICE)
    right = HopKeys(b"serving key")
    async with served(handler) as web:

        async def passed(header: str) -> int:
            reply = await web.exchange(post(body, HOP, **{"Tutti-Hop": header}))
            return reply.status

        assert await passed(right.header("/validate/pods", body)) == 200
        for forged in (
            "a",
            "ü",
            "0" * 64,
            right.header("/validate/jobs", body),
            right.header("/validate/pods", other),
            HopKeys(b"another").header("/validate/pods", body),
        ):
            assert await passed(forged) == 403
    async with served(ReviewHandler(view())) as alone:
        header = right.header("/validate/pods", body)
        assert (await alone.exchange(post(body, HOP, **{"Tutti-Hop": header}))).status == 403


def test_replicas_that_have_the_renewed_key_and_those_that_have_not_yet_understand_each_other() -> None:
    before, after = HopKeys(b"old"), HopKeys(b"old", b"new")
    for one, other in ((before, after), (after, before)):
        assert other.verify(one.header("/validate/pods", b"body"), "/validate/pods", b"body")
    assert not HopKeys(b"old", b"new", b"newer").verify(before.header("/p", b""), "/p", b"")
    assert not HopKeys().verify(HopKeys().header("/p", b""), "/p", b"")


async def test_a_silent_owner_is_left_out_at_once_and_its_namespaces_are_decided_here() -> None:
    async with replicas(with_quota(view(), gpu=1), with_quota(view(), gpu=1)) as cluster:
        owner = cluster.forwarders["a"].ownership.owner("team-a")
        other = "b" if owner == "a" else "a"
        # Nothing listens on the discard port.
        cluster.urls = cluster.urls | {owner: "http://127.0.0.1:9"}
        assert (await ask(cluster, other, "pod-1", gang=False)).allowed
        assert cluster.forwarders[other].ownership.live == {other}
        assert not (await ask(cluster, other, "pod-2", gang=False)).allowed


async def test_a_replica_that_came_back_is_asked_again() -> None:
    async with replicas(view(), view()) as cluster:
        forwarder = cluster.forwarders["a"]
        urls = cluster.urls
        cluster.urls = urls | {"b": "http://127.0.0.1:9"}
        await forwarder.check_peers()
        assert forwarder.ownership.live == {"a"}
        cluster.urls = urls
        await forwarder.check_peers()
        assert forwarder.ownership.live == {"a", "b"}


async def test_where_nothing_is_fenced_nobody_is_asked() -> None:
    async with replicas(view(fenced=False), view(fenced=False)) as cluster:
        cluster.urls = dict.fromkeys("ab", "http://127.0.0.1:9")
        for replica in "ab":
            assert (await ask(cluster, replica, "pod-1", gang=False)).allowed
        assert cluster.forwarders["a"].ownership.live == {"a", "b"}
