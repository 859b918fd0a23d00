"""Every byte that enters, fuzzed: nothing leaves an entry point but its own errors, and no work or text explodes.

Calls are counted, not time; ``make fuzz`` looks at the loop's time too. What is gone is forgotten: nothing that a
process keeps mentions it. ``make test`` tries the same examples in each run, ``make fuzz`` new ones for an hour.
"""

import asyncio
import copy
import gc
import time
import tracemalloc
from collections.abc import Callable, Mapping
from random import Random
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, Final

import orjson
import pytest
from hypothesis import event, example, given, reject, settings
from hypothesis import strategies as st

from tests.fuzz.costs import WatchedLoop, at_best, run
from tests.fuzz.strategies import JSON, NODES, POLICY, REAL, SHORT, changed, json_bytes
from tests.unit.kube.fake_api import FakeApi
from tests.unit.server.reviews import ALICE, reservation, view, with_ledger
from webhook import config
from webhook.cluster.feeds import Feeds
from webhook.cluster.nodes.occupancy import Occupancy
from webhook.cluster.view import View
from webhook.cluster.waiting import waiting_gang
from webhook.core.ledger import text as ledger_text
from webhook.core.ledger.record import reserve
from webhook.core.model.gang import Gang
from webhook.jobs.kinds.registry import KINDS
from webhook.kube.informer import Informer
from webhook.server.gate import Gate
from webhook.server.review.answer import Refusal
from webhook.wire.admission_review import BODY_BYTES_MAX

OBJECTS = changed(st.sampled_from(list(REAL.values())))

# -- watches: an object beside another, in a list and as an event


class One(FakeApi):
    """Lists what it holds as bytes."""

    raw: tuple[bytes, ...] = ()

    async def request(self, method: str, path: str, **_: Any) -> bytes:
        return b'{"metadata":{"resourceVersion":"5"},"items":[%s]}' % b",".join(self.raw)


GANG_BYTES_MAX = (1 << 20) // 25
"""What any gang may take of the ledger, each object of which holds 1 MiB. The product's own bound is another number."""
STORED_BYTES_MAX = 3 << 19
"""What etcd takes of one object, unless it is told otherwise."""
TURNS_MAX = 20_000
"""Of the event loop until a feed has taken in an object; a pause of a step each, a hundred are many."""
ODD_UID = "3f2a-of-the-odd-one"
SANE = {"metadata": {"name": "sane", "namespace": "team-a", "uid": "sane", "resourceVersion": "3"}, "spec": {}}
SANE_DAEMON_SET = SANE | {"spec": {"template": {"spec": {"containers": []}}}}


def identified(raw: bytes) -> bytes:
    """Give an object the identity that the API server gives each, if it is one that it could store."""
    if len(raw) > STORED_BYTES_MAX:
        reject()
    metadata = orjson.dumps(
        {
            "name": "odd",
            "namespace": "team-a",
            "uid": ODD_UID,
            "resourceVersion": "4",
            "labels": {"tutti.dev/queue-name": "lq"},
        }
    )
    return b'{"spec":{},%s,"metadata":%s}' % (raw[1:-1] or b'"x":1', metadata)


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
    assert not mentions((feeds.view, feeds._objects, informer.records, informer.unreadable), ODD_UID)


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


@example(greedy(5_000), "Job.batch", False)
@given(json_bytes(OBJECTS), st.sampled_from(sorted(KINDS)), st.booleans())
def test_any_object_of_a_job_kind_is_read_beside_others_and_fits_the_ledger(
    raw: bytes, kind: str, as_event: bool
) -> None:
    followed_job(f"{kind}/{KINDS[kind].version}", raw, as_event)


def followed_job(feed: str, raw: bytes, as_event: bool) -> None:
    def look(feeds: Feeds) -> None:
        assert feeds.informers[feed].counts.unreadable == 0
        fits_the_ledger(feeds.view)

    followed(feed, identified(raw), as_event, look)


@given(st.data())
def test_any_change_of_a_real_job_is_read_by_its_own_kind(data: st.DataObject) -> None:
    original = data.draw(st.sampled_from(list(REAL.values())))
    raw = data.draw(json_bytes(changed(st.just(original))))
    group = original["apiVersion"].rpartition("/")[0]
    kind = KINDS[f"{original['kind']}.{group}"]
    followed_job(f"{kind.key}/{kind.version}", raw, data.draw(st.booleans()))


def fits_the_ledger(seen: View) -> None:
    """What may be reserved for a job takes no more of the ledger than any gang may."""
    for job in seen.jobs.values():
        gang = waiting_gang(job, seen)
        event("waits" if not isinstance(gang, Gang) else "is a gang")
        if isinstance(gang, Gang):
            entry = reserve(gang, gang.queue, gang.counts, {}, 1, 0.0)
            size_bytes = len(ledger_text.encode_entry(entry))
            assert size_bytes <= GANG_BYTES_MAX, "a gang takes too much of the ledger"


OTHER_FEEDS = (
    "namespaces",
    "resourcequotas",
    "ledger",
    "ledger-pages",
    "nodes",
    "daemonsets",
    "policy-config-map",
    "priorityclasses",
    "limitranges",
    "runtimeclasses",
    "trainingruntimes",
    "podgroups.scheduling.x-k8s.io",
    "podgroups.scheduling.volcano.sh",
    "podgroups.scheduling.k8s.io/v1beta1",
    "clusterqueues.v1beta2.kueue.x-k8s.io",
    "queues.v1beta1.scheduling.volcano.sh",
)


@given(json_bytes(changed(st.sampled_from([*POLICY, *NODES])) | OBJECTS), st.sampled_from(OTHER_FEEDS), st.booleans())
def test_any_other_object_is_kept_beside_others(raw: bytes, feed: str, as_event: bool) -> None:
    def look(feeds: Feeds) -> None:
        assert feeds.view.nodes is not None
        feeds.view.nodes.settle((), {})

    followed(feed, identified(raw), as_event, look)


@pytest.mark.parametrize("as_event", [False, True])
@pytest.mark.parametrize("feed", ["podgroups.scheduling.x-k8s.io", "nodes", "resourcequotas"])
def test_an_object_nested_deeper_than_any_decoder_goes_is_read(feed: str, as_event: bool) -> None:
    """A PodGroup like it ended all processes."""

    def look(feeds: Feeds) -> None:
        assert feeds.informers[feed].counts.unreadable == 0

    followed(feed, identified(b'{"spec":%s}' % (b'{"x":' * 1_100 + b"1" + b"}" * 1_100)), as_event, look)


@given(json_bytes(OBJECTS), st.booleans())
def test_any_pod_counts_as_one_that_is_there(raw: bytes, as_event: bool) -> None:
    def look(feeds: Feeds) -> None:
        assert feeds.view.fences.has_pod("team-a", ODD_UID)

    followed("pods", identified(raw), as_event, look)


# -- reviews


def reviewed(obj: bytes, old: bytes, operation: str, kind: str, resource: str) -> bytes:
    group, _, version = str(kind).partition("/")
    request = {
        "uid": "review-1",
        "kind": {"group": group, "version": version, "kind": resource.rstrip("s")},
        "resource": {"group": group, "version": version, "resource": resource},
        "namespace": "team-a",
        "operation": operation,
        "userInfo": {"username": ALICE},
        "object": "OBJECT",
        "oldObject": "OLD",
    }
    body = orjson.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})
    return body.replace(b'"OBJECT"', obj).replace(b'"OLD"', old)


GATE = Gate(with_ledger(view(), reservation()))


@at_best
def judged(path: str, body: bytes) -> None:
    if len(body) > BODY_BYTES_MAX:
        # The server takes no longer one in.
        reject()
    status, answer = run(GATE.review(path, body, 1.0), len(body))
    assert status in (200, 400), (status, answer)
    assert Refusal.BROKEN.value not in answer.decode()
    assert b"failed to decide" not in answer
    assert len(answer) < 2_000 + 3 * len(body)


@given(st.data(), st.sampled_from(["CREATE", "UPDATE"]), st.sampled_from(GATE.paths))
def test_a_review_of_any_object_is_answered(data: st.DataObject, operation: str, path: str) -> None:
    original = data.draw(st.sampled_from(list(REAL.values())))
    kind = KINDS[f"{original['kind']}.{original['apiVersion'].rpartition('/')[0]}"]
    obj, old = (data.draw(json_bytes(changed(st.just(original)))) for _ in range(2))
    judged(path, reviewed(obj, old, operation, f"{kind.group}/{kind.version}", kind.plural))


@given(st.data(), st.sampled_from(["CREATE", "UPDATE"]))
def test_a_review_of_any_pod_is_answered(data: st.DataObject, operation: str) -> None:
    spec = REAL["job"]["spec"]["template"]["spec"]
    labels = {"tutti.dev/gang": "job-1", "tutti.dev/pod-set": "main"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "uid": "p", "labels": labels}, "spec": spec}
    obj, old = (data.draw(json_bytes(changed(st.just(pod)))) for _ in range(2))
    judged(data.draw(st.sampled_from(["/validate/pods", "/mutate/pods"])), reviewed(obj, old, operation, "/v1", "pods"))


@given(json_bytes(JSON) | st.binary(max_size=200), st.sampled_from(GATE.paths))
def test_any_bytes_are_answered(body: bytes, path: str) -> None:
    judged(path, body)


LEFT_BYTES_MAX = 1 << 20


@settings(max_examples=20 if SHORT else 100)
@given(st.data())
def test_memory_returns_whatever_reviews_came(data: st.DataObject) -> None:
    """Each review comes many times, of other pods and namespaces: what is kept of them is bounded."""
    pod = {"metadata": {"name": "p", "uid": "NAME"}, "spec": REAL["job"]["spec"]["template"]["spec"]}
    raw = data.draw(json_bytes(changed(st.just(pod), 2)))
    path = data.draw(st.sampled_from(["/validate/pods", "/mutate/pods"]))
    body = reviewed(raw, b"null", "CREATE", "/v1", "pods").replace(b"review-1", b"NAME" * 20)
    gate = Gate(with_ledger(view(), reservation()))

    async def flood(first: int) -> None:
        for number in range(first, first + 12):
            name = f"n{number}".encode()
            space = b"team-a" if number % 2 else name
            await gate.review(path, body.replace(b"NAME", name).replace(b"team-a", space), 1.0)

    asyncio.run(flood(0))
    gc.collect()
    tracemalloc.start()
    asyncio.run(flood(100))
    gc.collect()
    left, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert left < LEFT_BYTES_MAX
