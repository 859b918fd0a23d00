"""What enters a hub: its jobs and policies, whatever its members say, and their kubeconfigs.

A member is no friend: what it says may cost its own gangs time, and ends nothing of the hub.
"""

import asyncio
import base64
from collections.abc import Mapping
from random import Random
from typing import Any, Final

import orjson
import yaml
from hypothesis import event, example, given, reject
from hypothesis import strategies as st

from tests.fuzz.costs import at_best, bounded, run
from tests.fuzz.objects import METADATA, OTHERS, PROPAGATION, REAL
from tests.fuzz.strategies import JSON, SCALARS, changed, json_bytes
from tests.fuzz.test_bytes_that_enter import SANE, STORED_BYTES_MAX, TURNS_MAX, One, identified
from tests.unit.kube.fake_api import FakeApi
from webhook.core.fleet.dispatch import Dispatch, DispatchPhase, Offer
from webhook.core.fleet.proof import Evidence
from webhook.core.fleet.text import UnreadableRecord, decode
from webhook.errors import WrongInput
from webhook.fleet import watching
from webhook.fleet.credentials import kubeconfig
from webhook.fleet.members.copies import (
    copy_made,
    copy_read,
    placed_by_hub,
    stops_nobody,
    why_unwanted,
)
from webhook.fleet.members.member import Member, NoAnswer
from webhook.fleet.members.shown import cleared, ending, shown
from webhook.fleet.policies import propagation
from webhook.jobs.kinds.registry import KINDS
from webhook.kube.informer import Informer
from webhook.server.review.bounds import VALUES_MAX, crowded
from webhook.server.sharding import peers
from webhook.untyped.editing import Blocked
from webhook.wire.nesting import shallow

PLACED: Final = [kind for kind in KINDS.values() if kind.dispatchable]
JOB: Final = KINDS["Job.batch"]
DISPATCH: Final = Dispatch(DispatchPhase.GRANTED, Offer(1, 1), "m1", "cluster", "job-1", "4", "", ())


COLLECTIONS: Final = ("jobs", "pods", "events", "configmaps")


class Liar(FakeApi):
    """Answers whatever it was told to."""

    def __init__(self, one: bytes, many: bytes) -> None:
        super().__init__()
        self._one, self._many = bytes(one), bytes(many)

    async def request(self, method: str, path: str, **_: Any) -> bytes:
        if path.endswith("/kube-system"):
            return b'{"metadata":{"uid":"cluster"}}'
        return self._many if path.rpartition("/")[2] in COLLECTIONS else self._one


THINGS: Final = changed(st.sampled_from([*REAL.values(), OTHERS["ledger"], OTHERS["ledger-pages"]]))
ODD: Final = st.fixed_dictionaries(
    {"metadata": st.dictionaries(st.sampled_from(["name", "uid", "ownerReferences", "annotations"]), JSON | SCALARS)},
    optional={"data": st.dictionaries(st.sampled_from(["meta", "pages"]), SCALARS) | SCALARS, "status": SCALARS},
)
ONE: Final = json_bytes(st.one_of(THINGS, ODD, JSON)) | st.binary(max_size=40)
ITEMS: Final = st.lists(st.one_of(THINGS, ODD, SCALARS), max_size=3)
MANY: Final = json_bytes(st.fixed_dictionaries({"items": st.one_of(ITEMS, SCALARS)}))


@given(ONE, MANY)
def test_whatever_a_member_says_is_an_answer_or_none(one: bytes, many: bytes) -> None:
    asked_of_a_member(one, many)


@at_best
def asked_of_a_member(one: bytes, many: bytes) -> None:
    async def ask() -> None:
        for number in range(6):
            member = Member("m1", Liar(one, many))
            try:
                match number:
                    case 0:
                        await member.cluster()
                    case 1:
                        await member.look(JOB, "team-a", "train")
                    case 2:
                        await member.told.why_waiting("team-a", "job-1")
                        await member.told.why_stopped("team-a", "job-1")
                    case 3:
                        await member.copies([JOB], "hub")
                    case 4:
                        await member.leftovers([(JOB, "team-a", "train")])
                    case _:
                        for evidence in (Evidence.RESERVATION, Evidence.PODS):
                            await member.gone(evidence, JOB, "team-a", "train", DISPATCH)
            except NoAnswer:
                event("no answer")

    run(ask(), 20 * (len(one) + len(many)))


@given(changed(st.sampled_from(list(REAL.values()))), METADATA, st.sampled_from(PLACED))
def test_any_object_of_a_member_is_a_copy_or_somebody_elses(
    obj: dict[str, Any], metadata: Mapping[str, Any], kind: Any
) -> None:
    obj["metadata"] = {**obj["metadata"], **metadata}

    def read() -> None:
        copy_read(kind, obj)
        placed_by_hub(kind, obj)
        why_unwanted(kind, obj)
        cleared(kind, obj)
        stops_nobody(obj)
        for status in (obj.get("status"), obj.get("spec")):
            if isinstance(status, dict):
                ending(status)
                shown(kind, obj, status)

    bounded(read, 10 * len(orjson.dumps(obj, option=orjson.OPT_NON_STR_KEYS)))


@given(st.data())
def test_any_job_of_a_hub_is_copied(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(PLACED))
    of_kind = [
        each for each in REAL.values() if each["kind"] == kind.kind and each["apiVersion"].startswith(kind.group)
    ]
    obj = data.draw(changed(st.sampled_from(of_kind)))
    if not isinstance(obj.get("spec"), dict):
        return
    obj["metadata"] = {**obj["metadata"], **data.draw(METADATA)}
    raw = orjson.dumps(obj, option=orjson.OPT_NON_STR_KEYS)
    if len(raw) > STORED_BYTES_MAX or crowded(raw, VALUES_MAX):
        # The webhook of the hub's own cluster lets none in.
        reject()
    try:
        made = bounded(lambda: copy_made(kind, obj, "hub", DISPATCH), 10 * len(raw))
    except Blocked:
        # No API server with the kind's own schema stores it; a hub logs that job as broken and goes on with the others.
        event("malformed")
        return
    assert made["metadata"]["name"] == obj["metadata"]["name"]


@given(json_bytes(JSON).map(bytes.decode) | st.text() | JSON)
def test_a_record_is_read_or_unreadable(written: object) -> None:
    try:
        bounded(lambda: decode(written))
    except UnreadableRecord:
        event("unreadable")


def watched(api: FakeApi) -> list[Informer[Any]]:
    """Return what a hub watches, at home and in a member."""
    rng = Random(1)
    return [
        *watching.PropagationFeed(api, lambda found: None, rng=rng).informers,
        *watching.ledger(api, lambda came, went: None, name="m1", rng=rng),
        *watching.OwnJobsFeed(api, PLACED, lambda *_: None, rng=rng).informers.values(),
        *watching.copies(api, PLACED, "hub", lambda *_: None, name="m1", rng=rng),
    ]


@given(
    json_bytes(changed(st.sampled_from([PROPAGATION, *REAL.values(), *OTHERS.values()]))),
    METADATA,
    st.integers(0, len(watched(FakeApi())) - 1),
)
def test_what_a_hub_watches_is_read_beside_others(raw: bytes, metadata: Mapping[str, Any], number: int) -> None:
    hub_reads(identified(raw, metadata), number)


@at_best
def hub_reads(raw: bytes, number: int) -> None:
    api = One()
    api.raw = (raw, orjson.dumps(SANE))
    informer = watched(api)[number]
    followed(informer, len(raw))
    # What is too deep is cut away before anybody looks how long it is.
    assert informer.counts.unreadable == ("policies" in informer.name and too_large(shallow(raw)))
    assert informer.counts.listener_failures == 0


def too_large(raw: bytes) -> bool:
    size = propagation.read(orjson.loads(raw)).size_bytes
    return len(raw) > propagation.BYTES_MAX or size > propagation.SIZE_BYTES_MAX


def followed(informer: Informer[Any], size_bytes: int) -> None:
    async def follow() -> None:
        running = asyncio.create_task(informer.run())
        for _ in range(TURNS_MAX):
            if informer.synced.is_set():
                break
            assert not running.done(), "the feed has ended"
            await asyncio.sleep(0)
        running.cancel()

    run(follow(), size_bytes)


DEEP: Final = b'{"spec":[%s%s%s]}' % (b"[" * 200, b"]" * 200, b',{"a":"b"}' * 100_000)
"""Long, and nested too deep: cutting it takes many turns of the loop."""


@example(DEEP)
@given(json_bytes(changed(st.just(OTHERS["endpointslices"]))))
def test_an_endpoint_slice_of_any_shape_hides_no_other(raw: bytes) -> None:
    beside_another_slice(identified(raw))


@at_best
def beside_another_slice(raw: bytes) -> None:
    api = One()
    api.raw = (raw, orjson.dumps(OTHERS["endpointslices"] | {"metadata": SANE["metadata"]}))
    replicas = peers.ServicePeers(api, "tutti-system", "tutti-webhook", Random(1))

    async def follow() -> None:
        running = asyncio.create_task(replicas.run())
        for _ in range(TURNS_MAX):
            if "tutti-webhook-a" in (replicas() or ()):
                break
            assert not running.done(), "the feed has ended"
            await asyncio.sleep(0)
        running.cancel()

    run(follow(), len(raw))
    assert "tutti-webhook-a" in (replicas() or ())


TRUTH: Final = base64.b64encode(b"-----BEGIN CERTIFICATE-----\nA\n-----END CERTIFICATE-----\n").decode()
MEMBERS: Final = {
    "apiVersion": "v1",
    "kind": "Config",
    "current-context": "c",
    "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
    "clusters": [{"name": "k", "cluster": {"server": "https://127.0.0.1:1", "certificate-authority-data": TRUTH}}],
    "users": [{"name": "u", "user": {"token": "t"}}],
}
HARMFUL: Final = ["exec", "tokenFile", "client-key", "as", "proxy-url"]
KEYS: Final = [*HARMFUL, "insecure-skip-tls-verify", "extensions", "x"]
PARTS: Final = (("clusters", "cluster"), ("users", "user"))


@st.composite
def kubeconfigs_of_members(draw: st.DrawFn) -> str:
    written = draw(changed(st.just({"spec": MEMBERS})))["spec"]
    for part, inner in PARTS:
        found = written.get(part) if isinstance(written, dict) else None
        for entry in found if isinstance(found, list) else ():
            if isinstance(entry, dict) and isinstance(entry.get(inner), dict) and draw(st.booleans()):
                entry[inner] |= {draw(st.sampled_from(KEYS)): draw(JSON)}
    return yaml.safe_dump(written)


@given(kubeconfigs_of_members() | st.text(max_size=80) | JSON.map(yaml.safe_dump))
def test_a_members_kubeconfig_names_a_server_and_a_proof_or_is_refused(text: str) -> None:
    try:
        account = bounded(lambda: kubeconfig.read(text, "member m1"), 40 * len(text))
    except WrongInput:
        event("refused")
        return
    assert account.server.startswith("https://")
    assert account.token or account.certificate
    document = yaml.safe_load(text)
    used = [entry.get(inner) for part, inner in PARTS for entry in document[part] if isinstance(entry, dict)]
    assert not any(key in body for body in used if isinstance(body, dict) for key in HARMFUL)


@given(changed(st.just(PROPAGATION)), METADATA)
def test_any_propagation_policy_selects_what_it_can_be_read_to_select(
    policy: dict[str, Any], metadata: Mapping[str, Any]
) -> None:
    policy["metadata"] = {**policy["metadata"], **metadata}
    raw = orjson.dumps(policy, option=orjson.OPT_NON_STR_KEYS)
    if len(raw) > propagation.BYTES_MAX:
        return
    found = bounded(lambda: propagation.read(orjson.loads(raw)), 20 * len(raw))
    policies = propagation.by_namespace([found])
    for job in REAL.values():
        bounded(lambda job=job: propagation.applying(policies, job))  # type: ignore[misc]
    assert sum(len(str(problem)) for problem in found.problems) < 20_000 + 10 * len(raw)
