"""An API server that is slow, throttles Tutti or is gone: no process ends, and work goes on soon after relief."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final

import pytest

from tests.e2e.conftest import Team
from tests.e2e.controlplane.install import NAMESPACE, Installation
from tests.e2e.controlplane.link import Link
from tests.e2e.kubectl import Kubectl, stays, wait_until
from tests.e2e.objects import job, pod_template
from tests.e2e.queues import QUEUE, give_queue
from webhook.core.model import names

FAULT_SECONDS: Final = 10
"""More than a lease lasts."""
ACCOUNTS: Final = ("tutti-reconciler", "tutti-webhook")
FLOW: Final = "flowcontrol.apiserver.k8s.io/v1"

STARTED: Final = {"spec": {"suspend": False}}

Fault = Callable[[Link, Kubectl], AbstractContextManager[None]]


@contextmanager
def slow(link: Link, admin: Kubectl) -> Iterator[None]:
    """Let every call take two seconds longer."""
    link.delay_seconds = 2.0
    try:
        yield
    finally:
        link.mend()


@contextmanager
def gone(link: Link, admin: Kubectl) -> Iterator[None]:
    """Let nobody of ours reach the API server."""
    link.cut()
    try:
        yield
    finally:
        link.mend()


@contextmanager
def throttled(link: Link, admin: Kubectl) -> Iterator[None]:
    """Answer 429 to our accounts whenever one other request of theirs is under way."""
    level: dict[str, Any] = {"type": "Limited", "limited": {"nominalConcurrencyShares": 0, "borrowingLimitPercent": 0}}
    level["limited"] |= {"limitResponse": {"type": "Reject"}}
    admin.apply({"apiVersion": FLOW, "kind": "PriorityLevelConfiguration", "metadata": {"name": "jail"}, "spec": level})
    subjects: list[dict[str, Any]] = [
        {"kind": "ServiceAccount", "serviceAccount": {"name": name, "namespace": NAMESPACE}} for name in ACCOUNTS
    ]
    everything = {"apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"], "verbs": ["*"], "clusterScope": True}
    spec = {
        "matchingPrecedence": 2,
        "priorityLevelConfiguration": {"name": "jail"},
        "rules": [{"subjects": subjects, "resourceRules": [everything]}],
    }
    admin.apply({"apiVersion": FLOW, "kind": "FlowSchema", "metadata": {"name": "jail"}, "spec": spec})
    try:
        yield
    finally:
        admin("delete", "flowschema,prioritylevelconfiguration", "jail")


def rejected(admin: Kubectl) -> str:
    """Return the API server's counts of what it answered with 429."""
    lines = admin("get", "--raw", "/metrics").splitlines()
    return "\n".join(line for line in lines if line.startswith("apiserver_flowcontrol_rejected_requests_total"))


def terms(admin: Kubectl) -> int:
    """Return how often the lease was taken."""
    ledger = admin.in_namespace(NAMESPACE).get("configmap", names.LEDGER_NAME)
    return int(json.loads(ledger["metadata"]["annotations"][names.LEASE_ANNOTATION])["leaderTransitions"])


@pytest.mark.own_cluster
@pytest.mark.parametrize("fault", [slow, throttled, gone])
def test_no_process_ends_reviews_go_on_and_work_resumes(breakable: Installation, team: Team, fault: Fault) -> None:
    owner, link = team.owner, breakable.link
    assert link is not None
    give_queue(team.admin, 2)
    owner.create(job("before", 2, pod_template(), QUEUE))
    wait_until(lambda: len(owner.pods("job-name=before", "Running")) == 2, what="a gang runs")
    before, began = terms(team.admin), time.monotonic()
    with fault(link, team.admin):
        owner.create(job("late", 2, pod_template(), QUEUE))
        assert owner.get("job", "late")["spec"]["suspend"] is True
        assert "waits in queue" in owner.refused("patch", "job", "late", "--type=merge", f"-p={json.dumps(STARTED)}")
        assert owner.items("workloads.visibility.tutti.dev")
        owner("delete", "job", "before")
        rest = FAULT_SECONDS - (time.monotonic() - began)
        stays(lambda: all(replica.component.running for replica in breakable.replicas), rest, "no process ends")
    assert fault is not throttled or "jail" in rejected(team.admin), "there was no fault"
    relieved = time.monotonic()
    wait_until(
        lambda: owner.get("job", "late")["spec"]["suspend"] is False, what="what waited starts", poll_seconds=0.1
    )
    took = time.monotonic() - relieved
    print(f"{fault.__name__}: started {took:.1f} s after relief, {terms(team.admin) - before} changes of leader")
    assert terms(team.admin) - before <= 1
    wait_until(lambda: len(owner.pods("job-name=late", "Running")) == 2, what="whole")
