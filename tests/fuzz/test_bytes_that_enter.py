"""Every byte that enters, fuzzed: nothing leaves an entry point but its own errors, and no work or text explodes.

Calls are counted, not time; ``make fuzz`` looks at the loop's time too. What is gone is forgotten: nothing that a
process keeps mentions it. ``make test`` tries the same examples in each run, ``make fuzz`` new ones for an hour.
"""

import asyncio
import copy
import gc
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import orjson
import yaml
from hypothesis import event, example, given, settings
from hypothesis import strategies as st

from tests.fuzz.strategies import JSON, REAL, SCALARS, SHORT, changed, json_bytes
from tests.unit.kube.fake_api import FakeApi
from tests.unit.server.reviews import ALICE, reservation, view, with_ledger
from webhook import config
from webhook.cluster.feeds import Feeds
from webhook.cluster.ledger_book import LedgerBook
from webhook.cluster.nodes.occupancy import Occupancy
from webhook.cluster.view import View
from webhook.cluster.waiting import waiting_gang
from webhook.core.ledger import text as ledger_text
from webhook.core.ledger.bounds import ENTRY_BYTES_MAX
from webhook.core.ledger.pages import Found, Misplaced
from webhook.core.ledger.record import Ledger, reserve
from webhook.core.model.gang import Gang
from webhook.dialects import config_map, merge
from webhook.errors import PolicyError
from webhook.jobs.kinds.registry import KINDS
from webhook.kube import election
from webhook.kube.http import connect
from webhook.kube.informer import Informer
from webhook.server.gate import Gate
from webhook.server.review.answer import Refusal
from webhook.untyped.yaml_text import VALUES_MAX, UnreadableYaml, documents

T = TypeVar("T")
BLOCK_SECONDS_MAX = 0.05
CALLS_MAX = 400_000
"""Calls that one input may cost, Python's and C's, beside one a byte; an honest one costs some thousand."""

OBJECTS = changed(st.sampled_from(list(REAL.values())))
POLICY = (
    {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ClusterQueue",
        "metadata": {"name": "q"},
        "spec": {
            "cohortName": "c",
            "namespaceSelector": {"matchLabels": {"a": "b"}},
            "resourceGroups": [
                {
                    "coveredResources": ["cpu"],
                    "flavors": [{"name": "f", "resources": [{"name": "cpu", "nominalQuota": "4"}]}],
                }
            ],
        },
    },
    {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Cohort", "metadata": {"name": "c"}, "spec": {"parentName": "d"}},
    {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "LocalQueue",
        "metadata": {"name": "lq", "namespace": "team-a"},
        "spec": {"clusterQueue": "q"},
    },
    {
        "apiVersion": "scheduling.sigs.k8s.io/v1beta1",
        "kind": "ElasticQuotaTree",
        "metadata": {"name": "tree", "namespace": "kube-system"},
        "spec": {
            "root": {
                "name": "root",
                "min": {"cpu": 4},
                "max": {"cpu": 4},
                "children": [{"name": "leaf", "namespaces": ["team-a"], "min": {"cpu": 1}, "max": {"cpu": 4}}],
            }
        },
    },
    {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "Queue",
        "metadata": {"name": "vq"},
        "spec": {"weight": 1, "capability": {"cpu": 4}, "parent": "root"},
    },
)


def counted(work: Callable[[], T], size_bytes: int = 0) -> T:
    """Return what ``work`` returns; fail when that takes more calls than an input of that size may cost."""
    calls = 0

    def note(_frame: object, what: str, _argument: object) -> None:
        nonlocal calls
        calls += what in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        return work()
    finally:
        sys.setprofile(before)
        assert calls < CALLS_MAX + size_bytes, calls


class WatchedLoop(asyncio.SelectorEventLoop):
    """Knows how long its longest turn took, in seconds of processor."""

    longest_seconds = own_seconds = 0.0
    """The latter is what the test itself took of a turn."""

    def call_soon(self, callback: Any, *args: Any, **more: Any) -> asyncio.Handle:
        def timed(*args: Any) -> None:
            began = time.thread_time()
            try:
                callback(*args)
            finally:
                self.longest_seconds = max(self.longest_seconds, time.thread_time() - began - self.own_seconds)
                self.own_seconds = 0.0

        return super().call_soon(timed, *args, **more)


def run(work: Coroutine[Any, Any, T], size_bytes: int) -> T:
    """Return what ``work`` returns, which may not cost too many calls, nor block the loop where time is looked at."""
    if SHORT:
        return counted(lambda: asyncio.run(work), size_bytes)
    # A collection walks all that the fuzzer itself has kept: that is no turn of the loop's.
    gc.disable()
    try:
        with asyncio.Runner(loop_factory=WatchedLoop) as runner:
            result = runner.run(work)
            loop = runner.get_loop()
    finally:
        gc.enable()
    assert isinstance(loop, WatchedLoop)
    assert loop.longest_seconds < BLOCK_SECONDS_MAX, f"the loop was blocked for {loop.longest_seconds:.3f} s"
    return result


# -- watches: an object beside another, in a list and as an event


class One(FakeApi):
    """Lists what it holds as bytes."""

    raw: tuple[bytes, ...] = ()

    async def request(self, method: str, path: str, **_: Any) -> bytes:
        return b'{"metadata":{"resourceVersion":"5"},"items":[%s]}' % b",".join(self.raw)


ODD_UID = "3f2a-of-the-odd-one"
SANE = {"metadata": {"name": "sane", "namespace": "team-a", "uid": "sane", "resourceVersion": "3"}, "spec": {}}
SANE_DAEMON_SET = SANE | {"spec": {"template": {"spec": {"containers": []}}}}


def identified(raw: bytes) -> bytes:
    """Give an object the identity that the API server gives each."""
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


def followed(feed: str, raw: bytes, as_event: bool, look: Callable[[Feeds], None] = lambda feeds: None) -> None:
    """Have a feed meet ``raw`` beside a sane object, ``look`` what became of it, and delete it.

    Nothing of ours has failed at it, and nothing is left of it in the end.
    """
    api = One()
    seen = view()
    seen.nodes = Occupancy(("team-a",))
    feeds = Feeds(api, seen, config.Config(), KINDS, Random(1))
    feeds.view.namespaces["team-a"] = {"tutti.dev/gated": "true"}
    feeds._jobs_running = False
    informer: Informer[Any] = feeds.informers[feed]
    sane = orjson.dumps(SANE_DAEMON_SET if feed == "daemonsets" else SANE)
    api.raw = (sane,) if as_event else (raw, sane)

    async def follow() -> None:
        running = asyncio.create_task(informer.run())

        async def until(done: Callable[[], bool]) -> None:
            while not done():
                await asyncio.sleep(0)
                assert not running.done(), "the feed has ended"

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
        api.now.lines.put_nowait(b'{"type":"DELETED","object":%s}' % identified(b"{}"))
        await until(lambda: informer.counts.events > events)
        running.cancel()

    run(follow(), len(raw))
    assert any(record.name == "sane" for record in informer.records.values()), "an object is hidden"
    assert informer.counts.listener_failures == 0
    assert informer.counts.failures == 0
    assert not mentions((feeds.view, feeds._objects, informer.records, informer.unreadable), ODD_UID)


def mentions(root: object, text: str) -> bool:
    """Return whether anything that is kept in ``root`` is, or is named, ``text``."""
    seen: set[int] = set()
    waiting = [root]
    while waiting:
        each = waiting.pop()
        if isinstance(each, str | bytes):
            if each == text:
                return True
        elif id(each) not in seen:
            seen.add(id(each))
            if type(each).__module__.split(".")[0] in ("webhook", "builtins", "collections", "types"):
                waiting += each.items() if isinstance(each, Mapping) else gc.get_referents(each)
    return False


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
            assert len(ledger_text.encode_entry(entry)) <= ENTRY_BYTES_MAX


NODES = (
    {
        "kind": "Node",
        "spec": {"taints": [{"key": "k", "effect": "NoSchedule"}], "unschedulable": False},
        "status": {"allocatable": {"cpu": "4"}, "conditions": [{"type": "Ready", "status": "True"}]},
    },
    {
        "kind": "DaemonSet",
        "spec": {
            "template": {
                "spec": {
                    "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "100m"}}}],
                    "nodeSelector": {"kubernetes.io/os": "linux"},
                    "tolerations": [{"operator": "Exists"}],
                }
            }
        },
    },
)
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


@example(b'{"spec":%s}' % (b'{"x":' * 1_100 + b"1" + b"}" * 1_100), "podgroups.scheduling.x-k8s.io", False)
@given(json_bytes(changed(st.sampled_from([*POLICY, *NODES])) | OBJECTS), st.sampled_from(OTHER_FEEDS), st.booleans())
def test_any_other_object_is_kept_beside_others(raw: bytes, feed: str, as_event: bool) -> None:
    def look(feeds: Feeds) -> None:
        assert feeds.view.nodes is not None
        feeds.view.nodes.settle((), {})

    followed(feed, identified(raw), as_event, look)


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


def judged(path: str, body: bytes) -> None:
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


@settings(max_examples=20 if SHORT else 2_000)
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


# -- texts


@given(st.dictionaries(st.sampled_from(["meta", "claims", "bookings", "uid-1"]), json_bytes(JSON).map(bytes.decode)))
def test_a_ledger_is_read_or_corrupt(data: Mapping[str, str]) -> None:
    for text in (data, {**data, "meta": ledger_text.encode_meta(Ledger(1, 1), ledger_text.checksum(data))}):
        try:
            counted(lambda text=text: ledger_text.decode(text))
        except ledger_text.LedgerCorrupt:
            event("corrupt")


@given(st.dictionaries(st.sampled_from(["meta", "pages", "uid-1"]), json_bytes(JSON).map(bytes.decode)), st.data())
def test_index_and_pages_are_read_corrupt_or_misplaced(page: Mapping[str, str], data: st.DataObject) -> None:
    names = data.draw(json_bytes(JSON).map(bytes.decode) | st.just('{"page-1":"uid-of-page-1"}'))
    summed = {**page, "meta": ledger_text.encode_meta(Ledger(1, 1), ledger_text.checksum(page))}
    for content in (page, summed):
        index = {"pages": names}
        index["meta"] = ledger_text.encode_meta(Ledger(1, 1, pages={"page-1": "u"}), ledger_text.checksum(index))
        book = LedgerBook(index=index, pages={"page-1": Found("uid-of-page-1", content)})
        try:
            counted(book.read)
        except (ledger_text.LedgerCorrupt, Misplaced) as error:
            event(type(error).__name__)


@given(json_bytes(JSON).map(bytes.decode) | st.text())
def test_a_lease_is_read_or_nobodys(text: str) -> None:
    counted(lambda: election.parse(text))


YAML = st.text(max_size=80) | JSON.map(yaml.safe_dump) | json_bytes(JSON).map(bytes.decode)
LAUGHS = st.integers(2, 12).map(
    lambda levels: "\n".join(
        ["a0: &a0 [x, x]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, levels))]
    )
)


@given(YAML | LAUGHS)
def test_yaml_is_read_within_bounds_or_refused(text: str) -> None:
    try:
        found = counted(lambda: documents(text), 20 * len(text))
    except UnreadableYaml:
        event("refused")
        return
    assert len(orjson.dumps(found, default=str, option=orjson.OPT_NON_STR_KEYS)) < 100 * VALUES_MAX + len(text)


@given(st.lists(changed(st.sampled_from(POLICY)), max_size=4).map(yaml.safe_dump_all) | YAML | LAUGHS)
def test_any_policy_in_a_config_map_compiles_to_a_policy_with_problems(text: str) -> None:
    def compiled() -> object:
        objects, _ = config_map.objects_of({"metadata": {"name": "tutti-policy"}, "data": {"a": text}})
        return merge.compile_policy(objects)

    counted(compiled, 20 * len(text))


@given(st.lists(changed(st.sampled_from(POLICY)), max_size=5))
def test_any_policy_objects_compile_to_a_policy_with_problems(objects: list[Any]) -> None:
    size = len(orjson.dumps(objects, option=orjson.OPT_NON_STR_KEYS))
    counted(lambda: merge.compile_policy([each for each in objects if isinstance(each, dict)]), 10 * size)


CONFIGURED = st.dictionaries(st.sampled_from([*config.Config.model_fields, "fairSharing", "x"]), JSON, max_size=4)


@given(YAML | LAUGHS | CONFIGURED.map(yaml.safe_dump))
def test_a_configuration_is_read_or_refused(text: str) -> None:
    said = ""
    try:
        counted(lambda: config.parse(text, "config.yaml"), 20 * len(text))
    except PolicyError as error:
        said = str(error)
    assert len(said) < 1_000 + 10 * len(text)


KUBECONFIG = {
    "apiVersion": "v1",
    "kind": "Config",
    "current-context": "c",
    "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
    "clusters": [{"name": "k", "cluster": {"server": "https://127.0.0.1:1", "insecure-skip-tls-verify": True}}],
    "users": [{"name": "u", "user": {"token": "t"}}],
}


@st.composite
def kubeconfigs(draw: st.DrawFn) -> str:
    part = draw(st.sampled_from(sorted(KUBECONFIG)))
    inner = draw(JSON | SCALARS)
    return yaml.safe_dump(
        {**KUBECONFIG, part: draw(st.sampled_from([inner, [inner], [{"name": "c", "context": inner}]]))}
    )


@given(kubeconfigs() | YAML)
def test_a_kubeconfig_connects_or_is_refused(text: str) -> None:
    async def tried(path: Path) -> None:
        try:
            await (await connect(path)).close()
        except PolicyError:
            event("refused")

    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "kubeconfig"
        path.write_bytes(text.encode("utf-8", "replace"))
        asyncio.run(tried(path))
