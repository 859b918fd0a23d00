"""The members of a hub come from MultiKueue's objects as well as from its directory, while the hub runs."""

import asyncio
import base64
import contextlib
import copy
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import orjson
import pytest
import yaml
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

import webhook
from tests.unit.fleet.clusters import HUB_ACCOUNT, NAMESPACE, Fleet, fleet, plain_job
from tests.unit.fleet.credentials.guard import nothing_opened_or_started
from tests.unit.fleet.credentials.test_expiry import token
from tests.unit.fleet.credentials.test_kubeconfig import good
from tests.unit.fleet.policies.test_multikueue import PAGE, WORKER
from webhook import metrics
from webhook.clock import LoopClock
from webhook.errors import Forbidden
from webhook.fleet import roster
from webhook.fleet.credentials import kubeconfig as kubeconfigs
from webhook.fleet.credentials.kubeconfig import Account
from webhook.fleet.hub import Hub
from webhook.fleet.members.copies import dispatch_of
from webhook.fleet.roster import Roster
from webhook.jobs.kinds.registry import KINDS
from webhook.kube.api import MERGE_PATCH, Api
from webhook.laboratory.simulated.api import SimulatedApi

pytestmark = pytest.mark.virtual_time
QUEUE = "research"
POLICY: list[dict[str, Any]] = [
    {**obj, "metadata": {"name": QUEUE, "namespace": NAMESPACE}} if obj["kind"] == "LocalQueue" else obj for obj in PAGE
]


def kubeconfig(member: str, **user: Any) -> str:
    """Return credentials by whose token the test finds a member."""
    document = good()
    document["users"][0]["user"] = {"token": member, **user}
    return yaml.safe_dump(document)


def secret(text: str, name: str = "worker1-secret") -> dict[str, Any]:
    data = {"kubeconfig": base64.b64encode(text.encode()).decode()}
    metadata = {"name": name, "namespace": "kueue-system"}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}


class World:
    """A hub whose members are what the objects in it say."""

    def __init__(self, whole: Fleet, directory: Path) -> None:
        self.whole = whole
        self.hub = Hub(whole.hub.cluster.api(HUB_ACCOUNT), {}, KINDS, clock=LoopClock(), rng=Random(4))
        self.asked: list[str] = []
        """Tokens by which members were reached."""
        self._links: list[tuple[str, SimulatedApi]] = []
        self._cut: set[str] = set()
        self.members = Roster(self.hub, directory, self._reach)

    def _reach(self, account: Account) -> Api:
        self.asked.append(account.token)
        name = account.token.partition("-")[0]
        api = self.whole.members[name].cluster.api(HUB_ACCOUNT)
        self._links.append((name, api))
        if name in self._cut:
            api.sever()
        return api

    def cut(self, member: str) -> None:
        """Let nothing reach a member any more."""
        self._cut.add(member)
        for name, api in self._links:
            if name == member:
                api.sever()

    async def condition(self, plural: str, name: str) -> tuple[str, ...]:
        path = f"/apis/kueue.x-k8s.io/v1beta2/{plural}/{name}"
        stored = orjson.loads(await self.whole.hub.admin.request("GET", path))
        told = [each for each in stored.get("status", {}).get("conditions", ()) if each["type"] == "Active"]
        return tuple(told[0][key] for key in ("status", "reason", "message")) if told else ()

    async def says(self, plural: str, name: str, *said: str) -> None:
        try:
            async with asyncio.timeout(60):
                while (await self.condition(plural, name))[: len(said)] != said:
                    await asyncio.sleep(0.2)
        except TimeoutError:
            raise AssertionError(await self.condition(plural, name)) from None

    async def put_secret(self, text: str, name: str = "worker1-secret") -> None:
        path = f"/api/v1/namespaces/kueue-system/secrets/{name}"
        body = orjson.dumps({"data": secret(text)["data"]})
        await self.whole.hub.admin.request("PATCH", path, body=body, content_type=MERGE_PATCH)


@asynccontextmanager
async def world(directory: Path, *members: str, first: str | None = None) -> AsyncIterator[World]:
    """Yield a hub with the page's set-up, whose Secret says ``first``; None: there is no Secret."""
    async with fleet(*members, starts=False, hub_policy=POLICY) as whole:
        await whole.hub.cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kueue-system"}})
        if first is not None:
            await whole.hub.cluster.create(secret(first))
        made = World(whole, directory)
        running = [asyncio.create_task(made.hub.run()), asyncio.create_task(made.members.run())]
        try:
            yield made
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)


async def test_a_queue_that_names_the_check_gets_active_and_its_job_runs_in_the_cluster_that_it_names(
    tmp_path: Path,
) -> None:
    (tmp_path / "b").write_text(kubeconfig("b"))
    async with world(tmp_path, "a", "b", first=kubeconfig("a")) as it:
        await it.says("multikueueclusters", WORKER, "True", "Active", "Connected")
        await it.says("admissionchecks", "sample-multikueue", "True", "Active", "The admission check is active")
        await it.says("clusterqueues", "cluster-queue", "True", "Ready", "Can admit new workloads")
        job = plain_job(runtime="5s")
        del job["spec"]["managedBy"]
        await it.whole.hub.cluster.create(job)
        await it.whole.until(lambda: running_in(it.whole, "a"), 60)
        assert not await it.whole.members["b"].all("Job")
        await it.whole.until(lambda: it.whole.over("Job", "train"), 60)


async def running_in(whole: Fleet, member: str) -> bool:
    return await whole.members[member].running() == 2


async def test_a_refused_kubeconfig_is_said_on_its_cluster_and_the_queue_admits_nothing(tmp_path: Path) -> None:
    async with world(tmp_path, "a", first=kubeconfig("a", exec={"command": "id"})) as it:
        await it.says("multikueueclusters", WORKER, "False", "BadKubeConfig")
        assert "would run a command" in (await it.condition("multikueueclusters", WORKER))[2]
        await it.says("admissionchecks", "sample-multikueue", "False", "NoUsableClusters")
        await it.says("clusterqueues", "cluster-queue", "False", "AdmissionCheckInactive")
        assert not it.asked, "nobody was reached by it"
        assert not it.hub.fleet.swept.complete, "it may have gangs from before"
        await it.put_secret(kubeconfig("a"))
        await it.says("clusterqueues", "cluster-queue", "True", "Ready")
        assert it.hub.fleet.members_known
        assert it.hub.fleet.swept.complete


async def test_a_command_in_a_file_or_in_a_secret_is_not_run_and_no_other_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "b").write_text(kubeconfig("b", exec={"command": "id"}))
    # What the product brings with it is read when it is first needed.
    with nothing_opened_or_started(tmp_path, Path(webhook.__file__).parent):
        async with world(tmp_path, "a", "b", first=kubeconfig("a", exec={"command": "id"})) as it:
            await it.says("multikueueclusters", WORKER, "False", "BadKubeConfig")
            (tmp_path / "b").write_text(kubeconfig("b", tokenFile="/var/run/secrets/token"))
            await asyncio.sleep(10)
            assert not it.asked


async def test_a_queue_whose_check_was_deleted_says_that_it_does_not_exist(tmp_path: Path) -> None:
    async with world(tmp_path, "a", first=kubeconfig("a")) as it:
        await it.says("clusterqueues", "cluster-queue", "True", "Ready")
        check = "/apis/kueue.x-k8s.io/v1beta2/admissionchecks/sample-multikueue"
        await it.whole.hub.admin.request("DELETE", check)
        await it.says("clusterqueues", "cluster-queue", "False", "AdmissionCheckInactive")
        told = (await it.condition("clusterqueues", "cluster-queue"))[2]
        assert "there is no AdmissionCheck sample-multikueue" in told


@pytest.mark.parametrize(("named_after", "seconds"), [(roster.SOON_SECONDS, 2), (3, 4)], ids=["soon", "late"])
async def test_a_hub_that_starts_offers_as_soon_as_its_members_are_named_and_swept(
    named_after: float, seconds: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(roster, "SOON_SECONDS", named_after)
    (tmp_path / "a").write_text(kubeconfig("a"))
    async with fleet("a", starts=False) as whole:
        await whole.hub.cluster.create(plain_job(runtime="600s"))
        made = World(whole, tmp_path)
        running = [asyncio.create_task(made.hub.run()), asyncio.create_task(made.members.run())]
        try:
            await whole.until(lambda: phases(whole, ["granted"]), seconds)
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)


async def test_a_secret_that_comes_later_makes_a_member(tmp_path: Path) -> None:
    async with world(tmp_path, "a") as it:
        await it.says("multikueueclusters", WORKER, "False", "BadKubeConfig")
        await it.whole.hub.cluster.create(secret(kubeconfig("a")))
        await it.says("multikueueclusters", WORKER, "True")


async def test_no_kubeconfig_is_read_in_a_turn_of_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Secret with 64 KiB of dense YAML held up the hub for 0.18 s, every few seconds."""
    readers: list[threading.Thread] = []

    def noted(written: str, where: str) -> Account:
        readers.append(threading.current_thread())
        return read(written, where)

    read = kubeconfigs.read
    monkeypatch.setattr(kubeconfigs, "read", noted)
    async with world(tmp_path, "a", first=kubeconfig("a")) as it:
        await it.says("multikueueclusters", WORKER, "True")
    assert readers
    assert threading.current_thread() not in readers


async def test_a_new_token_is_taken_within_five_seconds_and_an_open_offer_stands(tmp_path: Path) -> None:
    async with world(tmp_path, "a", first=kubeconfig("a-1")) as it:
        await it.says("clusterqueues", "cluster-queue", "True", "Ready")
        await it.whole.hub.cluster.create(plain_job("first", pods=4, runtime="20s"))
        await it.whole.until(lambda: phases(it.whole, ["granted"]), 20)
        await it.whole.hub.cluster.create(plain_job("second", pods=4, runtime="5s"))
        await it.whole.until(lambda: phases(it.whole, ["granted", "offered"]), 20)
        await it.put_secret(kubeconfig("a-2"))
        await asyncio.sleep(5)
        assert it.asked == ["a-1", "a-2"]
        assert await phases(it.whole, ["granted", "offered"])
        await it.whole.until(lambda: it.whole.over("Job", "second"), 90)


async def test_new_tokens_are_taken_in_time_while_a_name_is_added_that_nobody_answers_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(tmp_path, "a", "b", first=kubeconfig("a-0")) as it:
        await it.says("clusterqueues", "cluster-queue", "True", "Ready")
        reach = it.members._reach

        def reached(account: Account) -> Api:
            api = reach(account)
            if account.token == "b":
                assert isinstance(api, SimulatedApi)
                api.freeze()
            return api

        monkeypatch.setattr(it.members, "_reach", reached)
        (tmp_path / "hole").write_text(kubeconfig("b"))
        for number in range(1, 6):
            await asyncio.sleep(3.3)
            await it.put_secret(kubeconfig(f"a-{number}"))
            await asyncio.sleep(3)
            assert f"a-{number}" in it.asked


async def phases(whole: Fleet, wanted: list[str]) -> bool:
    return sorted(str(dispatch_of(job).phase) for job in await whole.hub.all("Job")) == wanted


async def test_a_cluster_that_is_added_to_a_running_hub_stops_nobody_before_it_can_be_reached(tmp_path: Path) -> None:
    async with world(tmp_path, "a", "b", first=kubeconfig("a")) as it:
        await it.says("clusterqueues", "cluster-queue", "True", "Ready")
        added = copy.deepcopy(next(obj for obj in PAGE if obj["kind"] == "MultiKueueCluster"))
        added["metadata"]["name"] = "silent"
        added["spec"]["clusterSource"]["kubeConfig"]["location"] = "silent-secret"
        await it.whole.hub.cluster.create(secret("not yet", "silent-secret"))
        await it.whole.hub.cluster.create(added)
        await it.says("multikueueclusters", "silent", "False", "BadKubeConfig")
        assert it.hub.fleet.members_known
        assert it.hub.fleet.swept.complete
        path = "/apis/kueue.x-k8s.io/v1beta2/multikueueclusters/silent"
        await it.put_secret(kubeconfig("b"), "silent-secret")
        await it.says("multikueueclusters", "silent", "True")
        await it.whole.hub.admin.request("DELETE", path)
        await it.whole.until(lambda: left(it, "silent"), 20)


async def test_a_cluster_that_is_added_and_does_not_let_its_copies_be_listed_stops_nobody_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one whose roles are older than the kinds that this hub places: it could not be swept."""
    honest, added, refuses = SimulatedApi.request, list[Api](), True

    async def request(self: SimulatedApi, method: str, path: str, **how: Any) -> bytes:
        if refuses and self in added and path.endswith("/pytorchjobs"):
            raise Forbidden(403, "Forbidden", "pytorchjobs may not be listed by tutti-hub")
        return await honest(self, method, path, **how)

    monkeypatch.setattr(SimulatedApi, "request", request)
    async with world(tmp_path, "a", "b", first=kubeconfig("a")) as it:
        reach = it.members._reach

        def reached(account: Account) -> Api:
            api = reach(account)
            if account.token == "b":
                added.append(api)
            return api

        monkeypatch.setattr(it.members, "_reach", reached)
        await it.says("clusterqueues", "cluster-queue", "True", "Ready")
        (tmp_path / "b").write_text(kubeconfig("b"))
        with capture_logs() as logs:
            await asyncio.sleep(20)
        told = [each["error"] for each in logs if each["event"] == "fleet.not_taken"]
        assert len(told) == 1
        assert "pytorchjobs may not be listed" in told[0]
        assert it.hub.fleet.members_known
        assert it.hub.fleet.swept.complete, "offers go on"
        refuses = False
        await it.whole.until(lambda: joined(it, "b"), 20)


async def test_a_cluster_that_has_more_copies_than_a_hub_looks_at_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(tmp_path, "a", first=kubeconfig("a")) as it:
        await it.says("clusterqueues", "cluster-queue", "True", "Ready")
        await it.whole.hub.cluster.create(plain_job(runtime="600s"))
        await it.whole.until(lambda: running_in(it.whole, "a"), 60)
        with monkeypatch.context() as none:
            none.setattr("webhook.fleet.members.member.COPIES_MAX", 0)
            await it.says("multikueueclusters", WORKER, "False", "ClientConnectionFailed")
            assert "it has more than 0 copies of this hub" in (await it.condition("multikueueclusters", WORKER))[2]
        await it.says("multikueueclusters", WORKER, "True")


async def test_whether_it_answers_is_shown_of_members_alone(tmp_path: Path) -> None:
    """Not of one that has gone, nor of a name that has not become one: nobody would ever take that back."""

    def shown(member: str) -> float | None:
        return REGISTRY.get_sample_value("tutti_fleet_member_unreachable", {"member": member})

    for name in ("leaver", "wrong"):
        with contextlib.suppress(KeyError):
            metrics.MEMBER_UNREACHABLE.remove(name)
    (tmp_path / "leaver").write_text(kubeconfig("a"))
    async with world(tmp_path, "a", "b", first=kubeconfig("b")) as it:
        await it.says("multikueueclusters", WORKER, "True")
        assert shown("leaver") == 0
        it.cut("a")
        (tmp_path / "wrong").write_text(kubeconfig("a"))
        with capture_logs() as logs:
            await asyncio.sleep(20)
        assert (shown("leaver"), shown("wrong")) == (1, None)
        assert [each["member"] for each in logs if each["event"] == "fleet.not_taken"] == ["wrong"], "said once"
        assert set(it.hub.fleet.unjoined) == {"wrong"}
        (tmp_path / "leaver").unlink()
        await it.whole.until(lambda: left(it, "leaver"), 20)
        await asyncio.sleep(20)
        assert shown("leaver") is None


async def left(it: World, name: str) -> bool:
    return name not in it.hub.fleet.members


async def test_credentials_that_end_soon_are_told_of_on_their_secret_and_as_a_metric(tmp_path: Path) -> None:
    (tmp_path / "b").write_text(kubeconfig("b-" + token(iat=0, exp=10)))
    async with world(tmp_path, "a", "b", first=kubeconfig("a-" + token(iat=0, exp=20))) as it:
        await it.says("multikueueclusters", WORKER, "True")
        await asyncio.sleep(5)
        for namespace, name, member, until in (
            ("tutti-system", "tutti-hub-members", "b", 10),
            ("kueue-system", "worker1-secret", WORKER, 20),
        ):
            events = await it.whole.hub.admin.request("GET", f"/api/v1/namespaces/{namespace}/events")
            told = [each for each in orjson.loads(events)["items"] if each["reason"] == "CredentialsExpire"]
            assert [(each["involvedObject"]["name"], each["type"]) for each in told] == [(name, "Warning")]
            assert f"member {member} " in told[0]["message"]
            assert shown_of_credentials(member) == (until, until - until / 3)
        (tmp_path / "b").write_text(kubeconfig("b-which-says-nothing"))
        await asyncio.sleep(5)
        assert shown_of_credentials("b") == (None, None)


def shown_of_credentials(member: str) -> tuple[float | None, ...]:
    """Until when a member's credentials are good, and from when they should be renewed."""
    gauges = (f"tutti_fleet_credentials_{what}_timestamp_seconds" for what in ("expire", "renew"))
    return tuple(REGISTRY.get_sample_value(gauge, {"member": member}) for gauge in gauges)


@pytest.mark.parametrize("bad", [kubeconfig("a", exec={"command": "id"}).encode(), b"\xff"])
async def test_a_file_that_is_refused_keeps_no_other_member_from_its_new_credentials(
    bad: bytes, tmp_path: Path
) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text(kubeconfig(name))
    async with world(tmp_path, "a", "b") as it:
        await asyncio.sleep(5)
        (tmp_path / "a").write_bytes(bad)
        (tmp_path / "b").write_text(kubeconfig("b-new"))
        with capture_logs() as logs:
            await asyncio.sleep(5)
        assert {name: account.token for name, account in it.members.known.items()} == {"a": "a", "b": "b-new"}
        assert [each["event"] for each in logs if "member a" in each.get("error", "")] == ["fleet.kubeconfig_refused"]


@pytest.mark.parametrize("bad", [kubeconfig("a", exec={"command": "id"}).encode(), b"\xff"])
async def test_a_hub_that_starts_with_a_file_that_is_refused_follows_the_others_and_offers_once_it_is_mended(
    bad: bytes, tmp_path: Path
) -> None:
    (tmp_path / "a").write_bytes(bad)
    (tmp_path / "b").write_text(kubeconfig("b"))
    with capture_logs() as logs:
        async with world(tmp_path, "a", "b") as it:
            await it.whole.until(lambda: joined(it, "b"), 20)
            await asyncio.sleep(10)
            assert "b" not in it.hub.fleet.swept.due
            assert "a" in it.hub.fleet.swept.due, "it may have gangs"
            (tmp_path / "a").write_text(kubeconfig("a"))
            await it.whole.until(lambda: joined(it, "a"), 20)
            await asyncio.sleep(10)
            assert "a" not in it.hub.fleet.swept.due
    assert [each["event"] for each in logs if "member a" in each.get("error", "")] == ["fleet.kubeconfig_refused"]


async def test_a_file_that_was_refused_at_the_start_and_is_gone_is_waited_for_no_more(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("5")
    (tmp_path / "b").write_text(kubeconfig("b"))
    async with world(tmp_path, "a", "b") as it:
        await asyncio.sleep(10)
        assert "a" in it.hub.fleet.swept.due
        (tmp_path / "a").unlink()
        await asyncio.sleep(10)
        assert "a" not in it.hub.fleet.swept.due


async def test_credentials_that_name_no_time_end_nothing_of_the_hub(tmp_path: Path) -> None:
    (tmp_path / "a").write_text(kubeconfig("a-" + token(iat=0, exp=-1e308)))
    async with world(tmp_path, "a", "b") as it:
        await asyncio.sleep(5)
        (tmp_path / "b").write_text(kubeconfig("b"))
        await it.whole.until(lambda: joined(it, "b"), 20)


async def joined(it: World, name: str) -> bool:
    return name in it.hub.fleet.members
