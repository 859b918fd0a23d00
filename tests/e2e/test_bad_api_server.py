"""An API server that is slow, throttles Tutti, is full or gone: no process ends, and work goes on soon after."""

import json
import re
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any, Final

import pytest
import yaml

from tests.e2e.configuring import configured
from tests.e2e.conftest import Team, member
from tests.e2e.controlplane.install import NAMESPACE, ROOT, Installation
from tests.e2e.controlplane.link import Link
from tests.e2e.kubectl import Kubectl, stays, wait_until
from tests.e2e.load import Lists
from tests.e2e.objects import job, pod_template
from tests.e2e.queues import QUEUE, give_queue
from tests.e2e.shell import Shell
from webhook.core.notation import names

FAULT_SECONDS: Final = 10
"""More than a lease lasts."""
ACCOUNTS: Final = ("tutti-reconciler", "tutti-webhook")
FLOW: Final = "flowcontrol.apiserver.k8s.io/v1"
LEVEL: Final = "jail"
"""The priority level that a test puts our accounts into."""

STARTED: Final = {"spec": {"suspend": False}}

BIG: Final = 100
"""ConfigMaps of 20 kB: each list of them is work for the API server, and little for who lists."""

Fault = Callable[[Installation, Team], AbstractContextManager[None]]


@contextmanager
def slow(tutti: Installation, team: Team) -> Iterator[None]:
    """Let every call take two seconds longer."""
    link = link_of(tutti)
    link.delay_seconds = 2.0
    try:
        yield
    finally:
        link.mend()


@contextmanager
def gone(tutti: Installation, team: Team) -> Iterator[None]:
    """Let nobody of ours reach the API server."""
    link = link_of(tutti)
    link.cut()
    try:
        yield
    finally:
        link.mend()


@contextmanager
def throttled(tutti: Installation, team: Team) -> Iterator[None]:
    """Answer 429 to our accounts whenever one other request of theirs is under way."""
    limited = {"nominalConcurrencyShares": 0, "borrowingLimitPercent": 0, "limitResponse": {"type": "Reject"}}
    with level(team.admin, limited, precedence=2):
        yield
        assert LEVEL in rejected(team.admin), "there was no fault"


@contextmanager
def full(tutti: Installation, team: Team) -> Iterator[None]:
    """Let somebody else list, where our accounts ask too, until half of that is answered with 429.

    The level is small, to be full before the processors of this machine are. The ledger has its own, which Tutti ships.
    """
    one = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"filling": "x" * 20_000}}
    big = [one | {"metadata": {"name": f"big-{number}"}} for number in range(BIG)]
    team.owner.create({"apiVersion": "v1", "kind": "List", "items": big})
    here = team.admin.namespace
    user = f"{here}-lister"
    lister = member(tutti.cluster, team.admin, here, user)
    queuing = {"queues": 16, "handSize": 4, "queueLengthLimit": 5}
    limited = {"nominalConcurrencyShares": 1, "borrowingLimitPercent": 0, "lendablePercent": 0}
    limited |= {"limitResponse": {"type": "Queue", "queuing": queuing}}
    with (
        level(team.admin, limited, {"kind": "User", "user": {"name": user}}, precedence=300),
        Lists(lister.kubeconfig, f"/api/v1/namespaces/{here}/configmaps") as lists,
    ):
        wait_until(lambda: lists.answers["429"] > lists.answers["200"] > 0, what="half of the lists are refused")
        refused = lists.answers["429"]
        yield
        wait_until(lambda: lists.answers["429"] > refused, what="it is full to the end")
        print(f"lists by answer: {dict(lists.answers)}")


@contextmanager
def level(admin: Kubectl, limited: dict[str, Any], *others: dict[str, Any], precedence: int) -> Iterator[None]:
    """Let all that our accounts ask, and these others, go through one priority level of its own."""
    named = {"apiVersion": FLOW, "metadata": {"name": LEVEL}}
    admin.apply(named | {"kind": "PriorityLevelConfiguration", "spec": {"type": "Limited", "limited": limited}})
    ours = [{"kind": "ServiceAccount", "serviceAccount": {"name": name, "namespace": NAMESPACE}} for name in ACCOUNTS]
    everything = {"apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"], "verbs": ["*"], "clusterScope": True}
    spec = {
        "matchingPrecedence": precedence,
        "priorityLevelConfiguration": {"name": LEVEL},
        "distinguisherMethod": {"type": "ByUser"},
        "rules": [{"subjects": [*ours, *others], "resourceRules": [everything]}],
    }
    admin.apply(named | {"kind": "FlowSchema", "spec": spec})
    try:
        yield
    finally:
        admin("delete", "flowschema,prioritylevelconfiguration", LEVEL)


def link_of(tutti: Installation) -> Link:
    """Return what stands between Tutti's processes and the API server."""
    assert tutti.link is not None
    return tutti.link


def rejected(admin: Kubectl) -> str:
    """Return the API server's counts of what it answered with 429."""
    lines = admin("get", "--raw", "/metrics").splitlines()
    return "\n".join(line for line in lines if line.startswith("apiserver_flowcontrol_rejected_requests_total"))


def terms(admin: Kubectl) -> int:
    """Return how often the lease was taken."""
    ledger = admin.in_namespace(NAMESPACE).get("configmap", names.LEDGER_NAME)
    return int(json.loads(ledger["metadata"]["annotations"][names.LEASE_ANNOTATION])["leaderTransitions"])


@pytest.mark.own_cluster
@pytest.mark.parametrize("fault", [slow, throttled, full, gone])
def test_no_process_ends_reviews_go_on_and_work_resumes(breakable: Installation, team: Team, fault: Fault) -> None:
    owner = team.owner
    give_queue(team.admin, 2)
    owner.create(job("before", 2, pod_template(), QUEUE))
    wait_until(lambda: len(owner.pods("job-name=before", "Running")) == 2, what="a gang runs")
    before, began = terms(team.admin), time.monotonic()
    with fault(breakable, team):
        owner.create(job("late", 2, pod_template(), QUEUE))
        assert owner.get("job", "late")["spec"]["suspend"] is True
        assert "waits in queue" in owner.refused("patch", "job", "late", "--type=merge", f"-p={json.dumps(STARTED)}")
        assert owner.items("workloads.visibility.tutti.dev")
        owner("delete", "job", "before")
        rest = FAULT_SECONDS - (time.monotonic() - began)
        stays(lambda: all(replica.component.running for replica in breakable.replicas), rest, "no process ends")
    relieved = time.monotonic()
    wait_until(
        lambda: owner.get("job", "late")["spec"]["suspend"] is False, what="what waited starts", poll_seconds=0.1
    )
    took = time.monotonic() - relieved
    print(f"{fault.__name__}: started {took:.1f} s after relief, {terms(team.admin) - before} changes of leader")
    assert terms(team.admin) - before <= 1
    wait_until(lambda: len(owner.pods("job-name=late", "Running")) == 2, what="whole")


@pytest.mark.own_cluster
def test_the_runbook_of_a_slow_api_server_starts_gangs_through_calls_that_cost_the_usual_lease(
    breakable: Installation, team: Team
) -> None:
    """Followed as docs/operating.md has it; the configuration is written and read as there, without Deployments."""
    owner, shell, link = team.owner, Shell(team.admin), link_of(breakable)
    written = re.search(r"`(lease: \{[^`]*\})`", (ROOT / "docs" / "operating.md").read_text())
    assert written is not None, "the page says what to write"
    give_queue(team.admin, 2)
    earlier = lost_leases(breakable)
    link.delay_seconds = 3.0
    try:
        wait_until(lambda: lost_leases(breakable) > earlier, what="a lease is lost")
        # Not again where the loss of an earlier test was told a moment ago.
        told = wait_until(lambda: stepped_down(team.admin), what="a lost lease is told")
        assert any(re.search(r"renewed last at \S+Z, [0-9.]+ s ago", each) for each in told), told
        owner.create(job("late", 2, pod_template(), QUEUE))
        stays(lambda: owner.get("job", "late")["spec"]["suspend"] is True, FAULT_SECONDS, "nothing is admitted")
        assert "apiserver_current_inflight_requests" in shell(
            "kubectl get --raw /metrics | grep ^apiserver_current_inflight_requests"
        )
        with configured(breakable, team.admin, **yaml.safe_load(written[1])):
            started = partial(owner.get, "job", "late")
            wait_until(
                lambda: started()["spec"]["suspend"] is False, timeout_seconds=120, what="it starts all the same"
            )
            before = terms(team.admin)
            stays(lambda: terms(team.admin) == before, 2 * FAULT_SECONDS, "and the leader stays")
            link.mend()
    finally:
        link.mend()


def lost_leases(tutti: Installation) -> float:
    """Return how often the reconcilers that run have lost the lease."""
    pages = [urllib.request.urlopen(f"{replica.health}/metrics").read().decode() for replica in tutti.reconcilers]
    counts = re.findall(r'^tutti_stepped_down_total\{why="lease lost"\} (\S+)$', "\n".join(pages), re.MULTILINE)
    return sum(map(float, counts))


def stepped_down(admin: Kubectl) -> set[str]:
    """Return what leaders that stepped down have told, each with the time."""
    events = admin.in_namespace(NAMESPACE).items("events")
    return {event["message"] for event in events if event["reason"] == "SteppedDown"}
