"""The dead-man switch on a real hub and two real members: who hears nothing stops, and only then another may start."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e import objects, queues
from tests.e2e.controlplane.fleet import MEMBERS, FleetClusters
from tests.e2e.controlplane.install import NAMESPACE as SYSTEM
from tests.e2e.facts import told
from tests.e2e.kubectl import Kubectl, wait_until
from tests.e2e.watching import Watch
from webhook.core.fleet.silence import SLACK_SECONDS
from webhook.core.notation import names
from webhook.fleet import lost
from webhook.fleet.dead_man import FAILING_SECONDS

pytestmark = pytest.mark.own_cluster

SILENT_HUB_SECONDS = 15
"""The least that a member takes."""
GRACE_SECONDS = 1
PODS = 2
JOB = "cut-off"


@pytest.fixture(scope="module")
def world() -> Iterator[FleetClusters]:
    with FleetClusters(silent_hub_seconds=SILENT_HUB_SECONDS) as started:
        yield started


def test_a_member_that_is_cut_off_from_its_hub_stops_its_gang_before_another_gets_it(world: FleetClusters) -> None:
    for kubectl in world.members.values():
        tells(kubectl)
    left, right = (Watch(world.members[name]) for name in MEMBERS)
    with left, right:
        template = objects.pod_template(gpus=1, runtime="600s")
        template["spec"]["terminationGracePeriodSeconds"] = GRACE_SECONDS
        world.hub.create(objects.job(JOB, PODS, template, queues.QUEUE))
        member = wait_until(lambda: has_it(world), 90, what="it runs")
        (other,) = set(MEMBERS) - {member}
        world.links[member].hold()
        wait_until(lambda: not world.members[member].pods(f"job-name={JOB}"), 120, what="its member stops it")
        why = "Evicted: HubSilent: "
        wait_until(lambda: any(each.startswith(why) for each in told(world.members[member], JOB)), 20, what="says why")
        may_take = FAILING_SECONDS + SILENT_HUB_SECONDS + SLACK_SECONDS + GRACE_SECONDS
        wait_until(lambda: has_it(world) == other, 60 + may_take, what="the other has it")
        (silent,) = told(world.hub, JOB, "MemberSilent")
        assert re.match(
            rf"MemberSilent: {member} has not answered for 30 s or more: .+\. It has promised to stop the job after "
            rf"{SILENT_HUB_SECONDS} s of this; .*then: tutti fleet lost {member}$",
            silent,
        )
        (leaves,) = told(world.hub, JOB, "LeavesMember")
        heard_nothing = rf"LeavesMember: nothing was heard from {member} for \d+ s\. It is offered to members again$"
        assert re.match(heard_nothing, leaves)
        stopped, started = (left, right) if member == MEMBERS[0] else (right, left)
        gone = [change.at_seconds for change in stopped.changes if change.kind == "DELETED"]
        assert len(gone) == PODS
        assert max(gone) < min(change.at_seconds for change in started.changes)
        assert noted(world, lost.LOST) == {member}, "and it counts as lost"
        world.links[member].mend()
        wait_until(lambda: not world.members[member].items("jobs"), 60, what="its copy is swept")
        wait_until(lambda: not noted(world, lost.LOST) | noted(world, lost.SILENT), 60, what="it is a member again")
        assert has_it(world) == other
        assert len([change for change in started.changes if change.kind == "ADDED"]) == PODS
    world.hub.delete("job", JOB)
    wait_until(lambda: not world.members[other].pods(), 60, what="its pods are gone")


def has_it(world: FleetClusters) -> str:
    """Return the member that has all pods of the job; nothing while there is none."""
    found = [name for name, kubectl in world.members.items() if len(kubectl.pods(f"job-name={JOB}")) == PODS]
    return found[0] if len(found) == 1 else ""


def noted(world: FleetClusters, note: str) -> set[str]:
    """Return the members that one of the hub's notes names."""
    return set(world.hub.in_namespace(SYSTEM).get("configmap", note).get("data") or {})


def tells(member: Kubectl) -> None:
    """Wait until a member has told its hub that it has heard of it: the next renewal reads that."""
    first = wait_until(lambda: heard(member), 60, what="it has heard of its hub")
    wait_until(lambda: heard(member) != first, 60, what="it has heard of it again")


def heard(member: Kubectl) -> str:
    """Return what a member says it has heard of its hub."""
    leases = member.in_namespace(SYSTEM).items("leases")
    notes = [each["metadata"].get("annotations", {}) for each in leases if hub_lease(each)]
    return "".join(each.get(names.HEARD, "") for each in notes)


def hub_lease(lease: dict[str, Any]) -> bool:
    return str(lease["metadata"]["name"]).startswith(names.HUB_LEASE)
