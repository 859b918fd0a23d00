"""Whatever a hub, or the leader of a member, asks of an API server in a long story, our roles allow its account."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest

from tests.unit.fleet.clusters import ACCOUNT, HUB_ACCOUNT, NAMESPACE, fleet, plain_job
from tests.unit.fleet.credentials.test_expiry import token
from tests.unit.fleet.failing import failover_policy
from tests.unit.fleet.policies.test_multikueue import WORKER
from tests.unit.fleet.test_dead_man import LATE_SECONDS, PATIENCE, SURELY_SECONDS
from tests.unit.fleet.test_roster import POLICY, kubeconfig, secret
from tests.unit.manifests.documents import Document, documents_of, of_kind
from webhook.clock import LoopClock
from webhook.cluster.view import View
from webhook.controllers.gangs.silent_hubs import Hubs
from webhook.core.notation import names
from webhook.fleet.credentials.kubeconfig import Account
from webhook.fleet.dead_man import RENEW_SECONDS
from webhook.fleet.hub import Hub
from webhook.fleet.lost import SILENT, noted
from webhook.fleet.roster import Roster
from webhook.jobs.kinds.registry import KINDS
from webhook.kube.api import Api
from webhook.laboratory.simulated.api import SimulatedApi

JOBS = {"Job.batch": KINDS["Job.batch"]}
"""Rights of the other kinds are written from the same table as that of Jobs."""
VERBS = {"POST": "create", "PATCH": "patch", "DELETE": "delete", "PUT": "update"}
HUB = "components/fleet-hub", "components/multikueue"
MEMBER = "components/fleet-member"


class Call(NamedTuple):
    """What an API server asks its roles about."""

    verb: str
    group: str
    resource: str
    namespace: str
    name: str


def call(method: str, path: str, *, watch: bool = False) -> Call:
    parts = path.strip("/").split("/")
    group, rest = ("", parts[2:]) if parts[0] == "api" else (parts[1], parts[3:])
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2:
        namespace, rest = rest[1], rest[2:]
    resource, name = "/".join([rest[0], *rest[2:]]), rest[1] if len(rest) > 1 else ""
    verb = "watch" if watch else VERBS.get(method) or ("get" if name else "list")
    return Call(verb, group, resource, namespace, name)


class Noted:
    """A connection that notes what is asked of it."""

    def __init__(self, api: SimulatedApi, calls: set[Call]) -> None:
        self._api = api
        self._calls = calls

    def __getattr__(self, name: str) -> Any:
        return getattr(self._api, name)

    async def request(self, method: str, path: str, **how: Any) -> bytes:
        self._calls.add(call(method, path))
        return await self._api.request(method, path, **how)

    def watch(self, path: str, **how: Any) -> AsyncIterator[bytes]:
        self._calls.add(call("GET", path, watch=True))
        return self._api.watch(path, **how)


def allowed(documents: list[Document], account: str, asked: Call) -> bool:
    for binding in of_kind(documents, "ClusterRoleBinding", "RoleBinding"):
        if account not in {subject["name"] for subject in binding["subjects"]}:
            continue
        if binding["kind"] == "RoleBinding" and binding["metadata"]["namespace"] != asked.namespace:
            continue
        for role in of_kind(documents, binding["roleRef"]["kind"]):
            if role["metadata"]["name"] != binding["roleRef"]["name"]:
                continue
            if role["metadata"].get("namespace") != binding["metadata"].get("namespace"):
                continue
            if any(covers(rule, asked) for rule in role["rules"]):
                return True
    return False


def covers(rule: dict[str, Any], asked: Call) -> bool:
    named = rule.get("resourceNames")
    return (
        asked.verb in rule["verbs"]
        and asked.group in rule["apiGroups"]
        and asked.resource in rule["resources"]
        and (named is None or asked.name in named)
    )


def refused(account: str, calls: set[Call], *directories: str) -> list[Call]:
    documents = [each for directory in directories for each in documents_of(directory)]
    return sorted(each for each in calls if not allowed(documents, account, each))


@pytest.mark.virtual_time
async def test_all_that_a_hub_asks_at_home_and_in_its_members_its_roles_allow(tmp_path: Path) -> None:
    (tmp_path / "b").write_text(kubeconfig("b-" + token(iat=0, exp=10)))
    home: set[Call] = set()
    abroad: set[Call] = set()
    async with fleet("a", "b", starts=False, hub_policy=POLICY, silent_hub_seconds=PATIENCE) as whole:
        await whole.hub.cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kueue-system"}})
        await whole.hub.cluster.create(secret(kubeconfig("a")))
        # The hub's ConfigMaps come with its roles.
        for each in of_kind(documents_of(HUB[0]), "ConfigMap"):
            await whole.hub.cluster.create(each)
        links: dict[str, SimulatedApi] = {}

        def reach(account: Account) -> Api:
            name = account.token.partition("-")[0]
            links[name] = whole.members[name].cluster.api(HUB_ACCOUNT)
            return Noted(links[name], abroad)

        own = Noted(whole.hub.cluster.api(HUB_ACCOUNT), home)
        hub = Hub(own, {}, JOBS, clock=LoopClock(), rng=Random(4), dead_man=True)
        running = [asyncio.create_task(hub.run()), asyncio.create_task(Roster(hub, tmp_path, reach).run())]
        try:
            await asyncio.sleep(4 * RENEW_SECONDS)
            await whole.hub.cluster.create(failover_policy("Job"))
            metadata = {"name": "settings", "namespace": NAMESPACE}
            await whole.hub.cluster.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
            first = plain_job("first", runtime="5s")
            refers = {"serviceAccountName": "trainer", "volumes": [{"name": "v", "configMap": {"name": "settings"}}]}
            first["spec"]["template"]["spec"] |= refers
            await whole.hub.cluster.create(first)
            await whole.until(lambda: whole.over("Job", "first"), 60)
            await whole.hub.cluster.create(plain_job("second", runtime="6000s"))
            await asyncio.sleep(20)
            assert await whole.members["a"].running() == 2
            links["a"].freeze()
            await asyncio.sleep(SURELY_SECONDS + LATE_SECONDS)
            links["a"].thaw()
            await asyncio.sleep(30)
            assert await noted(own) == await noted(own, SILENT) == {}, "both notes were written and ended"
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
    system = names.SYSTEM_NAMESPACE
    assert {
        Call("patch", "", "configmaps", system, "tutti-fleet-lost"),
        Call("patch", "", "configmaps", system, "tutti-fleet-silent"),
        Call("get", "", "secrets", "kueue-system", "worker1-secret"),
        Call("create", "", "events", system, ""),
        Call("patch", "kueue.x-k8s.io", "multikueueclusters/status", "", WORKER),
        Call("patch", "kueue.x-k8s.io", "admissionchecks/status", "", "sample-multikueue"),
        Call("get", "", "serviceaccounts", NAMESPACE, "trainer"),
    } <= home, "the story is long enough"
    assert {"create", "patch"} <= {each.verb for each in abroad if each.resource == "leases"}
    assert Call("create", "", "configmaps", NAMESPACE, "") in abroad
    assert refused("tutti-hub", home, *HUB) == []
    assert refused("tutti-hub", abroad, MEMBER) == []


@pytest.mark.virtual_time
async def test_all_that_a_members_leader_asks_of_the_leases_of_hubs_its_role_allows() -> None:
    calls: set[Call] = set()
    async with fleet("a", silent_hub_seconds=None) as whole:
        whole.dead_man = True
        await whole.stop()
        whole.start()
        await asyncio.sleep(2 * RENEW_SECONDS)
        side = whole.members["a"]
        await Hubs(Noted(side.cluster.api(ACCOUNT), calls), View(), PATIENCE).look(LoopClock().now())
    assert {each.verb for each in calls} == {"list", "patch"}
    assert refused("tutti-reconciler", calls, MEMBER) == []
