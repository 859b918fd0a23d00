"""Every byte that enters, fuzzed: nothing leaves an entry point but its own errors, and no work or text explodes.

Calls are counted, not time; ``make fuzz`` looks at the loop's time too. What is gone is forgotten: nothing that a
process keeps mentions it. ``make test`` tries the same examples in each run, ``make fuzz`` new ones for an hour.
"""

import asyncio
import copy
import gc
import time
from collections.abc import Callable, Mapping
from random import Random
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, Final

import orjson
import pytest
from hypothesis import event, example, given, reject
from hypothesis import strategies as st

from tests.fuzz.costs import WatchedLoop, at_best, run
from tests.fuzz.objects import METADATA, REAL, own
from tests.fuzz.strategies import JSON, changed, json_bytes
from tests.unit.jobs.objects_of_kinds import special
from tests.unit.kube.fake_api import FakeApi
from tests.unit.server.reviews import view
from webhook import config
from webhook.cluster.feeds import Feeds
from webhook.cluster.nodes.occupancy import Occupancy
from webhook.cluster.view import View
from webhook.cluster.waiting import waiting_gang
from webhook.core.ledger import text as ledger_text
from webhook.core.ledger.record import reserve
from webhook.core.model.gang import Gang
from webhook.jobs.kinds.registry import KINDS
from webhook.jobs.pricing.context import context_from
from webhook.kube.informer import Informer

OBJECTS = changed(st.sampled_from(list(REAL.values())))

# -- watches: an object beside another, in a list and as an event


class One(FakeApi):
    """Lists what it holds as bytes."""

    raw: tuple[bytes, ...] = ()
    answer = b""
    """Instead."""

    async def request(self, method: str, path: str, **_: Any) -> bytes:
        await asyncio.sleep(0)
        return self.answer or b'{"metadata":{"resourceVersion":"5"},"items":[%s]}' % b",".join(self.raw)


GANG_BYTES_MAX = (1 << 20) // 25
"""What any gang may take of the ledger, each object of which holds 1 MiB. The product's own bound is another number."""
STORED_BYTES_MAX = 3 << 19
"""What etcd takes of one object, unless it is told otherwise."""
TURNS_MAX = 20_000
"""Of the event loop until a feed has taken in an object; a pause of a step each, a hundred are many."""
ODD_UID = "3f2a-of-the-odd-one"
SANE = {"metadata": {"name": "sane", "namespace": "team-a", "uid": "sane", "resourceVersion": "3"}, "spec": {}}
CONTEXT: Final = context_from(training_runtimes=[special("runtime")])
PLAIN: Final[Mapping[str, Any]] = {"labels": {"tutti.dev/queue-name": "lq"}}
SANE_DAEMON_SET = SANE | {"spec": {"template": {"spec": {"containers": []}}}}


def identified(raw: bytes, metadata: Mapping[str, Any] = PLAIN) -> bytes:
    """Give an object the identity that the API server gives each, if it is one that it could store."""
    if len(raw) > STORED_BYTES_MAX:
        reject()
    written = orjson.dumps({**metadata, "name": "odd", "namespace": "team-a", "uid": ODD_UID, "resourceVersion": "4"})
    return b'{"spec":{},%s,"metadata":%s}' % (raw[1:-1] or b'"x":1', written)


@at_best
def followed(feed: str, raw: bytes, as_event: bool, look: Callable[[Feeds], None] = lambda feeds: None) -> None:
    """Have a feed meet ``raw`` beside a sane object, ``look`` what became of it, and delete it.

    Nothing of ours has failed at it, and nothing is left of it in the end.
    """
    api = One()
    seen = view()
    seen.nodes = Occupancy(("team-a",))
    feeds = Feeds(api, seen, config.Config(), KINDS, Random(1))
    feeds.view.namespaces["team-a"] = {"tutti.dev/gated": "true"}
    feeds.context = CONTEXT
    informer: Informer[Any] = feeds.informers[feed]
    gone = identified(b"{}")
    if feed == "nodes":  # They have no namespace.
        raw, gone = (each.replace(b'"namespace":"team-a",', b"") for each in (raw, gone))
    sane = orjson.dumps(SANE_DAEMON_SET if feed == "daemonsets" else SANE)
    api.raw = (sane,) if as_event else (raw, sane)

    async def follow() -> None:
        running = asyncio.create_task(informer.run())

        async def until(done: Callable[[], bool]) -> None:
            for _ in range(TURNS_MAX):
                if done():
                    return
                await asyncio.sleep(0)
                assert not running.done(), "the feed has ended"
            raise AssertionError("the feed does not get past it")

        await until(lambda: informer.synced.is_set() and bool(api.watches))
        if as_event:
            api.now.lines.put_nowait(b'{"type":"MODIFIED","object":%s}' % raw)
            await until(lambda: informer.counts.events == 1)
        began = time.thread_time()
        look(feeds)
        loop = asyncio.get_running_loop()
        if isinstance(loop, WatchedLoop):
            loop.own_seconds = time.thread_time() - began
        events = informer.counts.events
        api.now.lines.put_nowait(b'{"type":"DELETED","object":%s}' % gone)
        await until(lambda: informer.counts.events > events)
        running.cancel()

    run(follow(), len(raw))
    assert any(record.name == "sane" for record in informer.records.values()), "an object is hidden"
    assert informer.counts.listener_failures == 0
    assert informer.counts.failures == 0
    assert not mentions((feeds.view, feeds.kept, informer.records, informer.unreadable), ODD_UID)


CODE: Final = (type, ModuleType, FunctionType, BuiltinFunctionType)


def mentions(root: object, text: str) -> bool:
    """Return whether anything that is kept in ``root`` is, or is named, ``text``."""
    seen: dict[int, object] = {}
    waiting = [root]
    while waiting:
        each = waiting.pop()
        if isinstance(each, str | bytes):
            if each == text:
                return True
        elif id(each) not in seen and not isinstance(each, CODE):
            seen[id(each)] = each  # Kept, or its id would soon be another's.
            if type(each).__module__.split(".")[0] in ("webhook", "builtins", "collections", "types"):
                waiting += each.items() if isinstance(each, Mapping) else gc.get_referents(each)
    return False


def test_what_a_view_keeps_is_found_in_it() -> None:
    seen = view()
    seen.namespaces["kept"] = {}
    assert mentions((seen,), "kept")
    assert not mentions((seen,), "not kept")


def greedy(names: int) -> bytes:
    """A Job that asks much of very many resources: it filled the ledger for everybody."""
    job = copy.deepcopy(REAL["job"])
    limits = {f"a.b/{number}": "9P" for number in range(names)}
    job["spec"]["template"]["spec"]["containers"][0]["resources"] = {"limits": limits}
    return orjson.dumps(job)


@example(greedy(5_000), "Job.batch", False, PLAIN)
@given(json_bytes(OBJECTS), st.sampled_from(sorted(KINDS)), st.booleans(), METADATA | st.just(PLAIN))
def test_any_object_of_a_job_kind_is_read_beside_others_and_fits_the_ledger(
    raw: bytes, kind: str, as_event: bool, metadata: Mapping[str, Any]
) -> None:
    followed_job(f"{kind}/{KINDS[kind].version}", raw, as_event, metadata)


def followed_job(feed: str, raw: bytes, as_event: bool, metadata: Mapping[str, Any]) -> None:
    def look(feeds: Feeds) -> None:
        assert feeds.informers[feed].counts.unreadable == 0
        fits_the_ledger(feeds.view)

    followed(feed, identified(raw, metadata), as_event, look)


@given(st.data())
def test_any_change_of_a_real_job_is_read_by_its_own_kind(data: st.DataObject) -> None:
    original = data.draw(st.sampled_from(list(REAL.values())))
    raw = data.draw(json_bytes(changed(st.just(original))))
    group = original["apiVersion"].rpartition("/")[0]
    kind = KINDS[f"{original['kind']}.{group}"]
    metadata = data.draw(st.just(PLAIN) | METADATA)
    notes = {**original["metadata"].get("annotations", {}), **metadata.get("annotations", {})}
    followed_job(f"{kind.key}/{kind.version}", raw, data.draw(st.booleans()), {**metadata, "annotations": notes})


def fits_the_ledger(seen: View) -> None:
    """What may be reserved for a job takes no more of the ledger than any gang may."""
    for job in seen.jobs.values():
        gang = waiting_gang(job, seen)
        event("waits" if not isinstance(gang, Gang) else "is a gang")
        if isinstance(gang, Gang):
            entry = reserve(gang, gang.queue, gang.counts, {}, 1, 0.0)
            size_bytes = len(ledger_text.encode_entry(entry))
            assert size_bytes <= GANG_BYTES_MAX, "a gang takes too much of the ledger"


def other_feeds() -> list[str]:
    """Return the names of all feeds but those of pods and jobs."""
    seen = view()
    seen.nodes = Occupancy(("team-a",))
    feeds = Feeds(One(), seen, config.Config(), KINDS, Random(1))
    return sorted(
        feeds.informers.keys() - {"pods"} - {each.feed for kind in KINDS.values() for each in kind.every_version}
    )


@pytest.mark.parametrize("feed", other_feeds())
def test_each_feed_has_an_object_of_its_own_kind_to_change(feed: str) -> None:
    assert own(feed)


@given(st.data(), st.sampled_from(other_feeds()), st.booleans(), METADATA)
def test_any_other_object_is_kept_beside_others(
    data: st.DataObject, feed: str, as_event: bool, metadata: Mapping[str, Any]
) -> None:
    def look(feeds: Feeds) -> None:
        assert feeds.view.nodes is not None
        feeds.view.nodes.settle((), {})

    raw = data.draw(json_bytes(changed(st.sampled_from(own(feed))) | OBJECTS))
    followed(feed, identified(raw, metadata), as_event, look)


@pytest.mark.parametrize("as_event", [False, True])
@pytest.mark.parametrize("feed", ["podgroups.scheduling.x-k8s.io", "nodes", "resourcequotas"])
def test_an_object_nested_deeper_than_any_decoder_goes_is_read(feed: str, as_event: bool) -> None:
    """A PodGroup like it ended all processes."""

    def look(feeds: Feeds) -> None:
        assert feeds.informers[feed].counts.unreadable == 0

    followed(feed, identified(b'{"spec":%s}' % (b'{"x":' * 1_100 + b"1" + b"}" * 1_100)), as_event, look)


@given(json_bytes(OBJECTS), st.booleans(), METADATA)
def test_any_pod_counts_as_one_that_is_there(raw: bytes, as_event: bool, metadata: Mapping[str, Any]) -> None:
    def look(feeds: Feeds) -> None:
        assert feeds.view.fences.pod("team-a", ODD_UID) is not None

    followed("pods", identified(raw, metadata), as_event, look)


class Eager(Random):
    """Nobody waits before trying again."""

    def uniform(self, a: float, b: float) -> float:
        return 0.0


ENVELOPES: Final = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR", "x"]) | JSON,
        "object": st.fixed_dictionaries({"metadata": METADATA | JSON}, optional={"code": JSON, "message": JSON}) | JSON,
    },
)


@at_best
def read_past(listed: bytes, lines: list[bytes]) -> None:
    """Have an informer of pods be answered so, and see it come to rest with what a sane list says."""
    api = One()
    api.answer = bytes(listed)
    informer = Feeds(api, view(), config.Config(), KINDS, Eager(1)).informers["pods"]

    async def follow() -> None:
        running = asyncio.create_task(informer.run())

        async def turns(number: int) -> None:
            for _ in range(number):
                await asyncio.sleep(0)
            assert not running.done(), "the feed has ended"

        async def sane() -> None:
            informer.relist()
            for _ in range(TURNS_MAX):
                await turns(1)
                if api.watches and any(record.name == "sane" for record in informer.records.values()):
                    return
            raise AssertionError("the feed does not get past it")

        await turns(9)
        api.answer, api.raw = b"", (orjson.dumps(SANE),)
        await sane()
        for line in lines:
            api.watches[-1].lines.put_nowait(bytes(line))
            await turns(9)
        await sane()
        running.cancel()

    run(follow(), len(listed) + sum(map(len, lines)))


@given(json_bytes(JSON) | st.binary(max_size=200), st.lists(json_bytes(ENVELOPES) | st.binary(max_size=99), max_size=3))
def test_whatever_stands_in_the_place_of_a_list_or_of_a_watchs_line_ends_no_feed(
    listed: bytes, lines: list[bytes]
) -> None:
    read_past(listed, lines)
