"""The walkthrough of a PodGroup against a ResourceQuota: two pods fit, three are needed, four are asked for."""

from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.e2e.conftest import AnyCluster, member
from tests.e2e.facts import told
from tests.e2e.kubectl import Kubectl, stays, wait_until
from tests.e2e.objects import job, pod_template, resource_quota
from tests.e2e.queues import reservations
from tests.e2e.shell import Shell
from tests.e2e.watching import Watch

pytestmark = pytest.mark.usefixtures("tutti")

POD_GROUP_LABEL: Final = "pod-group.scheduling.sigs.k8s.io"
EXAMPLE: Final = "examples/acs-gang-podgroup"


@pytest.fixture
def test_gang(kubectl: Kubectl, cluster: AnyCluster) -> Iterator[Kubectl]:
    """The walkthrough's user, in the namespace that the walkthrough creates: its pods ask for no security context."""
    wait_until(lambda: kubectl("create", "ns", "test-gang"), 60, "the namespace of an earlier run is gone")
    yield member(cluster, kubectl, "test-gang", "test-gang-owner")
    kubectl.delete("namespace", "test-gang")


def pod_group(name: str, least: int) -> dict[str, Any]:
    """Return a PodGroup."""
    version = "scheduling.sigs.k8s.io/v1alpha1"
    return {"apiVersion": version, "kind": "PodGroup", "metadata": {"name": name}, "spec": {"minMember": least}}


def grouped(name: str, pods: int, group: str) -> dict[str, Any]:
    """Return a Job whose pods belong to a PodGroup, in no queue."""
    return job(name, pods, pod_template(labels={POD_GROUP_LABEL: group}))


def test_the_walkthrough_starts_no_pod_and_says_why_then_all_four_when_the_quota_goes(
    kubectl: Kubectl, test_gang: Kubectl
) -> None:
    administrator, user = Shell(kubectl), Shell(test_gang)
    administrator(f"kubectl apply -f {EXAMPLE}/resource-quota.yaml")
    user(f"kubectl apply -f {EXAMPLE}/podgroup.yaml")
    with Watch(test_gang) as watch:
        user(f"kubectl apply -f {EXAMPLE}/gang-job.yaml")
        reason = wait_until(lambda: told(test_gang, "gang-job", "Queued"), what="its owner is told why it waits")[-1]
        assert "asks for 3 pods; ResourceQuota test-gang/object-counts has 2, 0 used" in reason
        assert user("kubectl get pod -n test-gang -o name") == ""
        assert watch.changes == []
        administrator("kubectl delete resourcequota -n test-gang object-counts")
        wait_until(lambda: len(test_gang.pods(phase="Running")) == 4, what="four pods run")
        assert user("kubectl get pod -n test-gang --no-headers").count("1/1") == 4


def test_a_gang_that_needs_three_of_four_starts_with_three_and_the_fourth_follows(
    owner: Kubectl, admin: Kubectl
) -> None:
    admin.apply(resource_quota("object-counts", pods="3"))
    owner.apply(pod_group("demo", 3))
    with Watch(owner) as watch:
        owner.apply(grouped("gang", 4, "demo"))
        wait_until(lambda: len(owner.pods(phase="Running")) == 3, what="three pods run")
        assert reservations(admin)["gang"].counts == {"main": 3}
        stays(lambda: len(owner.pods()) == 3, 2, "three pods exist")
        admin.apply(resource_quota("object-counts", pods="4"))
        wait_until(lambda: len(owner.pods(phase="Running")) == 4, timeout_seconds=60, what="the fourth follows")
        assert reservations(admin)["gang"].counts == {"main": 4}
        assert [change.kind for change in watch.changes].count("DELETED") == 0


def test_a_gang_waits_whole_while_its_quota_holds_fewer_than_it_needs(owner: Kubectl, admin: Kubectl) -> None:
    admin.apply(resource_quota("object-counts", pods="2"))
    owner.apply(pod_group("demo", 3))
    owner.apply(grouped("gang", 4, "demo"))
    stays(lambda: not owner.items("pods"), 3, "no pod exists")
    assert owner.get("job", "gang")["spec"]["suspend"] is True
    admin.apply(resource_quota("object-counts", pods="3"))
    wait_until(lambda: len(owner.pods(phase="Running")) == 3, what="three pods run")
