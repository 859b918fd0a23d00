"""A hub and two members as real control planes: a Job goes whole to one that has room, and its status comes back."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pytest
import yaml

from tests.e2e import objects, queues
from tests.e2e.configuring import configured
from tests.e2e.controlplane.fleet import HUB, MEMBERS, NAMESPACE, FleetClusters, log_rights, multikueue_set_up, set_up
from tests.e2e.controlplane.install import NAMESPACE as SYSTEM
from tests.e2e.controlplane.install import ROOT
from tests.e2e.controlplane.nodes import LOG_LINE
from tests.e2e.facts import told
from tests.e2e.kubectl import Kubectl, KubectlError, condition, stays, wait_until
from tests.e2e.refusing import WORDS, Refusing
from webhook.core.notation import names
from webhook.fleet.credentials.account import ACCOUNT

pytestmark = pytest.mark.own_cluster
AS_HUB = f"--as=system:serviceaccount:{SYSTEM}:{ACCOUNT}"
REFUSED = (
    "get secrets",
    "list secrets -n tutti-system",
    "create pods",
    "delete pods",
    "create pods --subresource=exec",
    "create pods --subresource=eviction",
    "create secrets",
    "list configmaps",
    "delete configmaps",
    "update configmaps",
    "list serviceaccounts",
    "delete serviceaccounts",
    "patch nodes",
    "list namespaces",
    "patch namespaces",
    "create serviceaccounts --subresource=token -n tutti-system",
    "impersonate users",
    "create clusterrolebindings",
    "patch jobs.batch --subresource=status",
    "deletecollection jobs.batch",
    "patch validatingadmissionpolicies",
)
"""What RBAC does not give a hub in a member; what a policy refuses it beside that is a test of its own."""


@pytest.fixture(scope="module")
def world() -> Iterator[FleetClusters]:
    with FleetClusters() as started:
        yield started


def submit(world: FleetClusters, name: str, pods: int, runtime: str = "30s") -> None:
    job = objects.job(name, pods, objects.pod_template(gpus=1, runtime=runtime), queues.QUEUE)
    world.hub.create(job)


def pods_of(world: FleetClusters, name: str) -> dict[str, int]:
    """Return how many pods of a job there are in each member."""
    found = {member: len(kubectl.pods(f"job-name={name}")) for member, kubectl in world.members.items()}
    assert not world.hub.pods()
    return {member: count for member, count in found.items() if count}


def test_the_set_up_of_the_page_is_five_commands_and_its_job_runs_in_a_member(world: FleetClusters) -> None:
    assert len(set_up()) == 5
    world.shell(set_up()[-1])
    wait_until(lambda: condition(world.hub.get("job", "first"), "Complete") == "True", 90, what="it ends")
    wait_until(lambda: not world.hub.get("job", "first")["metadata"].get("finalizers"), 60, what="let go")
    world.hub.delete("job", "first")


def test_multikueues_manifests_are_active_three_times_and_a_job_of_their_queue_runs_in_their_worker(
    world: FleetClusters,
) -> None:
    worker = world.members["left"].in_namespace("default")
    manifests = list(yaml.safe_load_all((ROOT / "examples" / "fleet" / "multikueue.yaml").read_text()))
    for each in manifests[:3]:
        spec = {key: value for key, value in each.get("spec", {}).items() if key != "admissionChecksStrategy"}
        worker.apply({**each, "spec": spec})
    *commands, queue, check, cluster = multikueue_set_up()
    for command in commands:
        world.shell(command)

    def printed() -> list[str]:
        return [world.shell(command).strip() for command in (queue, check, cluster)]

    expected = [
        "CQ - Active: True Reason: Ready Message: Can admit new workloads",
        "AC - Active: True Reason: Active Message: The admission check is active",
        "MC - Active: True Reason: Active Message: Connected",
    ]
    wait_until(lambda: printed() == expected, 90, what="Active three times")
    hub = world.hub.in_namespace("default")
    job = objects.job("sample", 2, objects.pod_template(gpus=0, runtime="3s"), "user-queue")
    job["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["memory"] = "200Mi"
    hub.create(job)
    assert hub.get("job", "sample")["spec"]["managedBy"] == names.HUB_MANAGER
    assert "immutable" in hub.refused(
        "patch", "job", "sample", "--type=merge", '--patch={"spec": {"managedBy": "x.io/y"}}'
    )
    wait_until(lambda: condition(hub.get("job", "sample"), "Complete") == "True", 60, what="it ends")
    placed = "ScheduleBindingSucceed"
    results = [each["message"] for each in hub.items("events") if each["reason"] == placed]
    assert results == ["Binding has been scheduled successfully. Result: {multikueue-test-worker1:0,[{main 2}]}"]
    wait_until(lambda: not hub.get("job", "sample")["metadata"].get("finalizers"), 60, what="let go")
    hub.delete("job", "sample")
    world.shell("kubectl delete -f examples/fleet/multikueue.yaml")


def test_gangs_run_whole_in_one_member_each_and_end_on_the_hub(world: FleetClusters) -> None:
    for name in ("one", "two"):
        submit(world, name, 4)
    where = {
        name: wait_until(lambda name=name: pods_of(world, name), 90, what=f"{name} runs") for name in ("one", "two")
    }
    assert [len(found) for found in where.values()] == [1, 1], "each in one member"
    assert {member for found in where.values() for member in found} == set(MEMBERS), "where there is room"
    for name in ("one", "two"):
        wait_until(
            lambda name=name: condition(world.hub.get("job", name), "Complete") == "True",
            90,
            what=f"{name} ends",
        )
        wait_until(lambda name=name: not world.hub.get("job", name)["metadata"].get("finalizers"), 60, what="let go")
    for kubectl in world.members.values():
        assert not kubectl.items("jobs")
        wait_until(lambda kubectl=kubectl: not queues.entries(kubectl), 60, what="its room is free")


def test_kubectl_amc_reads_in_the_members(world: FleetClusters) -> None:
    submit(world, "seen", 2, runtime="600s")
    wait_until(lambda: [*pods_of(world, "seen").values()] == [2], 90, what="it runs whole")
    (member,) = pods_of(world, "seen")
    pod = world.members[member].pods("job-name=seen")[0]["metadata"]["name"]

    def asked(words: str) -> str:
        return world.shell(f"kubectl amc {words} -n {NAMESPACE}")

    head, row = (line.split() for line in asked("get job -M").splitlines())
    assert (*head[:2], head[-1]) == ("NAME", "CLUSTER", "ADOPTION")
    assert (*row[:2], row[-1]) == ("seen", member, "Y")
    head, *rows = (line.split() for line in asked("get pod -M").splitlines())
    assert head == ["NAME", "CLUSTER", "READY", "STATUS", "RESTARTS", "AGE"]
    assert [row[1] for row in rows] == [member, member]
    assert names.PERMIT in yaml.safe_load(asked(f"get job seen -m {member} -oyaml"))["metadata"]["annotations"]
    wait_until(lambda: "SuccessfulCreate" in asked("describe job seen -M"), what="its events are shown")
    assert "SuccessfulCreate" in asked(f"get events -m {member}")
    has_it = re.compile(rf"^member +{member} has it *$", re.MULTILINE)

    def explained() -> str:
        return world.shell(f"tutti explain job/seen -n {NAMESPACE}")

    # The hub learns a moment later that its pods are there.
    wait_until(lambda: has_it.search(told_now := explained()) and "0 of 2 exist" not in told_now, what="explained")
    held = f"Job {NAMESPACE}/seen would be offered elsewhere"
    assert [name for name in MEMBERS if held in world.shell(f"tutti fleet lost {name} --dry-run")] == [member]
    logs = f"logs {pod} -m {member}"
    with pytest.raises(KubectlError, match='cannot get resource "pods/log"'):
        asked(logs)
    for command in log_rights():
        world.shell(command.replace("$member", member))
    wait_until(lambda: asked(logs) == f"{LOG_LINE}\n", 20, what="it may read logs")
    assert asked(f"logs {pod} -M") == f"{LOG_LINE}\n", "wherever it is"
    world.hub.delete("job", "seen")
    wait_until(lambda: not pods_of(world, "seen"), 60, what="its pods are gone")


def test_a_job_that_is_deleted_in_the_hub_leaves_its_member_though_no_webhook_answers(world: FleetClusters) -> None:
    submit(world, "short", 2)
    wait_until(lambda: pods_of(world, "short"), 90, what="it runs")
    (webhook,) = world.installations[HUB].webhooks
    webhook.component.kill()
    try:
        world.hub("delete", "job", "short", "--wait=false")
        wait_until(lambda: not pods_of(world, "short"), 60, what="its pods are gone")
        wait_until(lambda: "short" not in jobs_of(world.hub), 60, what="the hub let go of it")
    finally:
        webhook.component.start()
        world.installations[HUB].wait_ready()
    for kubectl in world.members.values():
        wait_until(lambda kubectl=kubectl: not queues.entries(kubectl), 60, what="its room is free")


KEPT: Final = (
    {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "jobs-are-kept"},
        "spec": {
            "matchConstraints": {
                "resourceRules": [
                    {"apiGroups": ["batch"], "apiVersions": ["v1"], "resources": ["jobs"], "operations": ["DELETE"]}
                ]
            },
            "validations": [{"expression": "false", "message": "no deletions on Thursdays"}],
        },
    },
    {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "jobs-are-kept"},
        "spec": {"policyName": "jobs-are-kept", "validationActions": ["Deny"]},
    },
)


def is_kept(administrator: Kubectl, job: str) -> bool:
    try:
        administrator("delete", "job", job, "--dry-run=server")
    except KubectlError as error:
        return "Thursdays" in error.stderr
    return False


def test_a_member_that_refuses_to_delete_a_copy_is_named_with_its_words(world: FleetClusters) -> None:
    submit(world, "kept", 2, runtime="600s")
    (member,) = wait_until(lambda: pods_of(world, "kept"), 90, what="it runs")
    administrator = world.members[member]
    administrator.set_up(*KEPT)
    try:
        wait_until(lambda: is_kept(administrator, "kept"), 30, what="the policy is in force")
        world.hub("delete", "job", "kept", "--wait=false")
        wait_until(lambda: told(world.hub, "kept", "MemberKeepsJob"), 30, what="its owner is told")
        said = " ".join(world.shell(f"tutti explain job/kept -n {NAMESPACE}").split())
        assert "it is being deleted in the hub" in said
        assert f"{member} refuses to delete its copy" in said
        assert "no deletions on Thursdays" in said
    finally:
        for each in KEPT:
            administrator.delete(each["kind"], each["metadata"]["name"])
    wait_until(lambda: "kept" not in jobs_of(world.hub), 60, what="the hub let go of it")


def test_a_member_whose_webhook_is_down_says_so_itself_and_its_gangs_go_to_the_other(world: FleetClusters) -> None:
    first, other = MEMBERS
    (webhook,) = world.installations[first].webhooks
    webhook.component.kill()
    try:
        submit(world, "detour", 2)
        wait_until(lambda: pods_of(world, "detour") == {other: 2}, 60, what="it runs where it can")
        (why,) = json.loads(world.hub.get("job", "detour")["metadata"]["annotations"][names.DISPATCH])["elsewhere"]
    finally:
        webhook.component.start()
        world.installations[first].wait_ready()
    assert f"{first} says 500 InternalError: " in why
    assert "failed calling webhook" in why
    assert "does not answer" not in why
    wait_until(lambda: condition(world.hub.get("job", "detour"), "Complete") == "True", 90, what="it ends")
    world.hub.delete("job", "detour")


def test_a_webhook_in_the_members_that_refuses_a_copy_by_any_status_is_named_with_its_words(
    world: FleetClusters,
) -> None:
    refused = ("copy-429", "copy-503", "copy-401")
    with Refusing(*world.members.values()):
        for name in (*refused, "beside"):
            submit(world, name, 1, runtime="600s")
        for name in refused:
            code = name.partition("-")[2]
            said = re.compile(rf"({'|'.join(MEMBERS)}) says {code} [^;]*denied the request: {WORDS}")
            wait_until(lambda name=name, said=said: said.search(record(world, name)), 15, what=name)
        wait_until(lambda: pods_of(world, "beside"), 30, what="another runs on")
        assert not [name for name in refused if pods_of(world, name)]
    for name in refused:
        wait_until(lambda name=name: pods_of(world, name), 30, what=f"{name} runs once nothing refuses it")
    world.hub("delete", "job", *refused, "beside")


def test_a_webhook_in_the_hub_that_refuses_a_record_or_a_status_by_any_status_is_told(world: FleetClusters) -> None:
    records, statuses = ("record-409", "record-429"), ("status-409", "status-429")
    with Refusing(world.hub):
        for name in (*records, *statuses, "beside"):
            submit(world, name, 1, runtime="600s")
        for name in (*records, *statuses):
            reason = "DispatchRefused" if name in records else "StatusRefused"
            (event,) = wait_until(lambda name=name, reason=reason: told(world.hub, name, reason), 40, what=name)
            assert WORDS in event
            assert WORDS in " ".join(world.shell(f"tutti explain job/{name} -n {NAMESPACE}").split())
        wait_until(lambda: pods_of(world, "beside"), 30, what="another runs on")
        assert all(pods_of(world, name) for name in statuses)
        assert not [name for name in records if pods_of(world, name)]
    for name in (*records, *statuses):
        wait_until(lambda name=name: world.hub.get("job", name).get("status", {}).get("startTime"), 40, what=name)
    world.hub("delete", "job", *records, *statuses, "beside")


def record(world: FleetClusters, name: str) -> str:
    """Return what stands on a job of where it is, as it is written."""
    return str(world.hub.get("job", name)["metadata"].get("annotations", {}).get(names.DISPATCH, ""))


def test_a_job_whose_copy_is_deleted_in_its_member_runs_again_and_ends_in_the_hub(world: FleetClusters) -> None:
    submit(world, "again", 2, runtime="5s")
    (member,) = wait_until(lambda: pods_of(world, "again"), 90, what="it runs")
    wait_until(lambda: world.hub.get("job", "again").get("status", {}).get("startTime"), 30, what="the hub shows it")
    world.members[member].delete("job", "again")
    wait_until(lambda: condition(world.hub.get("job", "again"), "Complete") == "True", 90, what="it ends")
    wait_until(lambda: not world.hub.get("job", "again")["metadata"].get("finalizers"), 60, what="let go")
    world.hub.delete("job", "again")


def test_a_job_that_fails_is_tried_in_the_other_member_and_then_has_failed(world: FleetClusters) -> None:
    selector = {"apiVersion": "batch/v1", "kind": "Job", "name": "fails"}
    again = {"application": {"decisionConditions": {"tolerationSeconds": 1}, "purgeMode": "Immediately"}}
    world.hub.create(
        {
            "apiVersion": "policy.one.alibabacloud.com/v1alpha1",
            "kind": "PropagationPolicy",
            "metadata": {"name": "example-policy"},
            "spec": {"resourceSelectors": [selector], "failover": again},
        }
    )
    submit(world, "fails", 2, runtime="600s")
    tried: list[str] = []
    for _ in MEMBERS:
        (member,) = wait_until(lambda: pods_of(world, "fails").keys() - set(tried), 90, what=f"it runs, not in {tried}")
        tried.append(member)
        # A kubelet that has yet to say that it runs would take back that it failed.
        runs = wait_until(lambda: world.members[member].pods("job-name=fails", "Running"), 60, what="a pod runs")  # noqa: B023
        pod = runs[0]["metadata"]["name"]
        assert condition(world.hub.get("job", "fails"), "Failed") != "True"
        world.members[member].patch("pod", pod, {"status": {"phase": "Failed"}}, "--subresource=status")
    wait_until(lambda: condition(world.hub.get("job", "fails"), "Failed") == "True", 60, what="it has failed")
    then = "It is offered to members again once nothing of it is left there"
    left = rf"^ *Normal +LeavesMember .* {tried[0]} says that it has failed \(.*\. {then}$"
    assert len(re.findall(left, world.hub("describe", "job", "fails"), re.MULTILINE)) == 1, "from the first"
    wait_until(lambda: not world.hub.get("job", "fails")["metadata"].get("finalizers"), 60, what="let go")
    world.hub.delete("job", "fails")


def test_a_hub_gives_its_own_quota_to_one_job_after_another(world: FleetClusters) -> None:
    queues.set_gpus(world.hub, 2)
    submit(world, "now", 2, runtime="600s")
    wait_until(lambda: pods_of(world, "now"), 90, what="the first runs")
    submit(world, "then", 2)
    spec = world.hub.get("job", "then")["spec"]
    assert (spec["suspend"], spec["managedBy"]) == (True, names.HUB_MANAGER)
    assert [entry.name for entry in queues.entries(world.hub)] == ["now"]
    assert not pods_of(world, "then")
    world.hub.delete("job", "now")
    wait_until(lambda: pods_of(world, "then"), 90, what="the second runs")
    world.hub.delete("job", "then")
    wait_until(lambda: not queues.entries(world.hub), 60, what="the hub's quota is free")
    queues.set_gpus(world.hub, 8)


@pytest.mark.parametrize(("strategy", "passes"), [("StrictFIFO", False), ("BestEffortFIFO", True)])
def test_a_queue_of_the_hub_lets_small_jobs_pass_its_head_unless_it_blocks(
    world: FleetClusters, strategy: str, passes: bool
) -> None:
    queue = queues.cluster_queue_of(f"{NAMESPACE}-{queues.QUEUE}", 4)
    queue["spec"]["queueingStrategy"] = strategy
    world.hub.apply(queue)
    # Names of its own: what was told of a job stays when it has gone.
    holds, head, small = (f"{name}-{strategy.lower()}" for name in ("holds", "head", "small"))
    submit(world, holds, 2, runtime="600s")
    wait_until(lambda: pods_of(world, holds), 90, what="the first runs")
    submit(world, head, 4)
    wait_until(lambda: told(world.hub, head, "Queued"), 60, what="the head waits")
    submit(world, small, 2, runtime="600s")
    if passes:
        wait_until(lambda: pods_of(world, small), 90, what="the small one passes")
    else:
        wait_until(lambda: told(world.hub, small, "Queued"), 60, what="the small one waits")
        stays(lambda: not pods_of(world, small), 5, "behind the head")
    assert not pods_of(world, head)
    for name in (head, small, holds):
        world.hub.delete("job", name)
    wait_until(lambda: not queues.entries(world.hub), 60, what="the hub's quota is free")
    queues.set_gpus(world.hub, 8)


def test_a_gang_that_no_member_takes_gives_its_slot_to_the_next_and_is_queued_again(world: FleetClusters) -> None:
    with configured(world.installations[HUB], world.hub, start={"timeout_seconds": 15}):
        submit(world, "large", 6)
        wait_until(lambda: [each.name for each in queues.entries(world.hub)] == ["large"], 60, what="it has a slot")
        submit(world, "next", 4, runtime="600s")
        wait_until(lambda: pods_of(world, "next"), 120, what="the next runs")
        assert not pods_of(world, "large")
        large = world.hub.get("job", "large")
        assert large["spec"]["suspend"], "it waits again"
        for name in ("next", "large"):
            world.hub.delete("job", name)
        wait_until(lambda: not queues.entries(world.hub), 60, what="the hub's quota is free")


def test_a_job_whose_namespace_no_member_has_says_so_within_seconds(world: FleetClusters) -> None:
    world.hub("create", "namespace", "only-here")
    hub = world.hub.in_namespace("only-here")
    hub.create(objects.job("train", 1, objects.pod_template(gpus=0), managedBy=names.HUB_MANAGER))

    seen = set[str]()

    def told_of() -> set[str]:
        record = json.loads(hub.get("job", "train")["metadata"].get("annotations", {}).get(names.DISPATCH, "{}"))
        told = "\n".join(record.get("elsewhere", ()))
        seen.update(re.findall(r'(\w+) says 404 NotFound: namespaces "only-here" not found', told))
        return seen

    wait_until(told_of, 20, what="one member is said to lack it")
    wait_until(lambda: told_of() == set(MEMBERS), 60, what="then the other")
    says = r"^ *Normal +NoMember .* No member of the fleet has taken it yet: .*(left|right) says 404 NotFound: "
    wait_until(lambda: re.search(says, hub("describe", "job", "train"), re.MULTILINE), 60, what="its owner is told")
    hub("delete", "namespace", "only-here", "--wait=false")


@pytest.mark.parametrize("act", REFUSED)
def test_a_member_gives_a_hub_no_right_to(world: FleetClusters, act: str) -> None:
    # It answers no by its exit status, and says so where it did not understand.
    with pytest.raises(KubectlError) as refused:
        world.members["left"]("auth", "can-i", *act.split(), AS_HUB)
    assert "error:" not in refused.value.stderr


def test_a_member_lets_a_hub_touch_its_copies_only(world: FleetClusters) -> None:
    member = world.members["left"]
    plain = objects.job("theirs", 1, objects.pod_template(gpus=1, runtime="600s"), queues.QUEUE)
    copy = marked(plain, "kept")
    member.create(plain | {"spec": plain["spec"] | {"suspend": True}})
    wait_until(
        lambda: "only copies" in refused_create(member, plain | {"metadata": {"name": "own"}}), 20, what="policy"
    )
    for bad in (
        marked(plain, "permitted", {names.PERMIT: "x"}),
        plain | {"metadata": plain["metadata"] | {"name": "unmarked"}},
    ):
        assert "only copies" in refused_create(member, bad)
    member("create", "-f", "-", AS_HUB, stdin=yaml.safe_dump(copy))
    permit = f'--patch={{"metadata": {{"annotations": {{"{names.PERMIT}": "none"}}}}}}'
    for change in ('{"spec": {"parallelism": 2}}', '{"metadata": {"labels": {"other": "x"}}}'):
        refusal = member.refused("patch", "job", "kept", "--type=merge", f"--patch={change}", AS_HUB)
        assert "nothing of a copy but its permit" in refusal
    member("patch", "job", "kept", "--type=merge", permit, AS_HUB)
    for act in (("patch", "job", "theirs", "--type=merge", permit), ("delete", "job", "theirs", "--wait=false")):
        assert "only copies" in member.refused(*act, AS_HUB)
    member("label", "job", "kept", f"{names.ORIGIN_LABEL}-")
    member("delete", "job", "kept", "--wait=false", AS_HUB)
    member.delete("job", "theirs")


def test_a_tenant_of_the_hub_does_not_say_where_a_job_is(world: FleetClusters) -> None:
    tenant = f"--as=system:serviceaccount:{NAMESPACE}:default"
    world.hub("create", "rolebinding", "edits", "--clusterrole=edit", f"--serviceaccount={NAMESPACE}:default")
    job = objects.job("elsewhere", 1, objects.pod_template(gpus=1, runtime="600s"), queues.QUEUE)
    job |= {"spec": job["spec"] | {"managedBy": names.HUB_MANAGER, "suspend": True}}
    record = {"annotations": {names.DISPATCH: '{"phase":"nowhere","offer":"1.1"}'}}
    for lie in (record, {"finalizers": [names.DISPATCH]}):
        bad = yaml.safe_dump(job | {"metadata": job["metadata"] | lie})
        wait_until(
            lambda bad=bad: (
                "only the fleet's hub writes"
                in world.hub.refused("create", "-f", "-", tenant, "--dry-run=server", stdin=bad)
            ),
            20,
            what="the policy is in force",
        )
    world.hub("create", "-f", "-", tenant, stdin=yaml.safe_dump(job))
    refusal = world.hub.refused("annotate", "job", "elsewhere", "--overwrite", f"{names.DISPATCH}=gone", tenant)
    assert "only the fleet's hub writes" in refusal
    world.hub("label", "job", "elsewhere", "team=a", tenant)
    world.hub("create", "role", "shows", "--verb=get,patch", "--resource=jobs,jobs/status")
    world.hub("create", "rolebinding", "shows", "--role=shows", f"--serviceaccount={NAMESPACE}:default")
    wait_until(lambda: world.hub.get("job", "elsewhere")["metadata"].get("finalizers"), 60, what="it is offered")
    for lie in (record, {"finalizers": None}):
        patch = f"--patch={json.dumps({'metadata': lie})}"
        written = ("patch", "job", "elsewhere", "--subresource=status", "--type=merge", patch, tenant)
        # Until the tenant's rights are in force, they are refused for want of them.
        wait_until(
            lambda written=written: "only the fleet's hub writes" in world.hub.refused(*written), what="it is judged"
        )
    world.hub.delete("job", "elsewhere")


def jobs_of(kubectl: Kubectl) -> set[str]:
    return {each["metadata"]["name"] for each in kubectl.items("jobs")}


def refused_create(member: Kubectl, job: dict[str, Any]) -> str:
    return member.refused("create", "-f", "-", AS_HUB, "--dry-run=server", stdin=yaml.safe_dump(job))


def marked(job: dict[str, Any], name: str, notes: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return a job as a hub's copy; of a hub that nobody is."""
    metadata = {
        "name": name,
        "labels": {**job["metadata"].get("labels", {}), names.ORIGIN_LABEL: "no-hub"},
        "annotations": {names.OFFER: "no-job 1.1", **(notes or {})},
    }
    return job | {"metadata": metadata, "spec": job["spec"] | {"suspend": True}}
