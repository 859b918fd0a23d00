"""What the authors of policy try, and those who use queues that were not given to them."""

import copy
import json
import re
import time
from collections.abc import Iterator
from functools import partial
from typing import Any, Final

import pytest
import yaml

from tests.e2e.conftest import AnyCluster
from tests.e2e.controlplane.install import NAMESPACE
from tests.e2e.facts import told
from tests.e2e.kubectl import Kubectl, KubectlError, wait_until
from tests.e2e.objects import GPU, job, jobset, pod, pod_template
from tests.e2e.queues import QUEUE, cluster_queue_of, give_queue, reservations
from tests.e2e.shell import Shell
from webhook.core.notation import names

pytestmark = pytest.mark.usefixtures("tutti")


def test_a_queue_that_holds_a_job_is_not_deleted_and_goes_when_the_job_has_gone(owner: Kubectl, admin: Kubectl) -> None:
    cluster_queue, cohort = give_queue(admin, gpus=4), f"{admin.namespace}-cohort"
    admin.apply({"apiVersion": KUEUE, "kind": "Cohort", "metadata": {"name": cohort}, "spec": {}})
    in_cohort = cluster_queue_of(cluster_queue, 4)
    in_cohort["spec"]["cohortName"] = cohort
    admin.apply(in_cohort)
    owner.apply(job("train", 4, pod_template(), QUEUE))
    wait_until(lambda: len(owner.pods(phase="Running")) == 4, what="the job is admitted, and the webhook knows it")
    held = (("clusterqueue", cluster_queue), ("localqueue", QUEUE), ("resourceflavor", "any-node"), ("cohort", cohort))
    for kind, name in held:
        with pytest.raises(KubectlError, match=r"holds .*train.*wait until"):
            admin.delete(kind, name)
    owner.delete("job", "train")
    wait_until(lambda: admin.delete("localqueue", QUEUE), what="the local queue may go")
    wait_until(lambda: admin.delete("clusterqueue", cluster_queue), what="the queue may go")
    wait_until(lambda: admin.delete("cohort", cohort), what="its cohort may go")


def test_a_queue_of_volcano_that_holds_a_job_is_not_taken_out_of_the_policy(owner: Kubectl, admin: Kubectl) -> None:
    name, system = f"{admin.namespace}-volcano", admin.in_namespace(NAMESPACE)
    queue = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": name}}
    entry = yaml.safe_dump(queue | {"spec": {"capability": {GPU: 4}, "deserved": {GPU: 4}}})
    policy = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "tutti-policy"}}
    system.apply(policy | {"data": {"volcano": entry}})
    owner.apply(job("train", 4, pod_template(), name))
    wait_until(lambda: len(owner.pods(phase="Running")) == 4, what="the job is admitted, and the webhook knows it")
    for refused in (
        system.refused("apply", "-f", "-", stdin=json.dumps(policy | {"data": {}})),
        system.refused("delete", "configmap", "tutti-policy"),
    ):
        assert f"{name} holds" in refused
        assert "train" in refused
    owner.delete("job", "train")
    wait_until(lambda: system.delete("configmap", "tutti-policy"), what="the queue may go")


def test_a_namespace_is_deleted_with_the_queues_and_jobs_in_it(owner: Kubectl, admin: Kubectl) -> None:
    give_queue(admin, gpus=4)
    owner.apply(job("train", 4, pod_template(), QUEUE))
    wait_until(lambda: "train" in reservations(admin), what="the job is admitted")
    admin.delete("namespace", admin.namespace)
    gone = "the namespace is gone with its queue and its job"
    wait_until(lambda: not admin("get", "namespace", admin.namespace, "--ignore-not-found"), 120, gone)


# -- what one may use -------------------------------------------------------------------------------------------------

KUEUE: Final = "kueue.x-k8s.io/v1beta2"
RIGHTS: Final = "manifests/overlays/right-to-use"
OPEN: Final = "manifests/components/right-to-use/open.yaml"
POLICIES: Final = "manifests/components/right-to-use/policies.yaml"
SETTLE_SECONDS: Final = 2
"""The API server looks once a second which policies there are."""


@pytest.fixture(scope="module")
def rights(kubectl: Kubectl) -> Iterator[None]:
    """What one uses is a right, which everybody has at first; the policies that say so take seconds to come and go."""
    Shell(kubectl)(f"kubectl apply -k {RIGHTS}")
    yield
    # Who comes next may use everything, also while the policies are still in force.
    Shell(kubectl)(f"kubectl apply -f {OPEN}")
    Shell(kubectl)(f"kubectl delete --ignore-not-found -f {POLICIES}")
    time.sleep(SETTLE_SECONDS)
    Shell(kubectl)(f"kubectl delete --ignore-not-found -k {RIGHTS}")


@pytest.fixture
def urgent(admin: Kubectl, rights: None) -> Iterator[str]:
    """A priority class, in a cluster where what one uses is a right; nobody has been given any."""
    name = f"{admin.namespace}-urgent"
    admin.apply({"apiVersion": KUEUE, "kind": "WorkloadPriorityClass", "metadata": {"name": name}, "value": 100})
    Shell(admin)(f"kubectl apply -f {OPEN}")
    yield name
    admin.delete("workloadpriorityclass", name)


def close(admin: Kubectl) -> None:
    """Take away what everybody may use, and wait until that is in force."""
    admin.delete("clusterrolebinding", "tutti-use-everything")


def grant(admin: Kubectl, who: str, resource: str, *names: str) -> None:
    """Give a user of the namespace the right to use some objects."""
    plural, _, group = resource.partition(".")
    role = f"use-{plural}"
    rule = {"apiGroups": [group], "resources": [plural], "resourceNames": list(names), "verbs": ["use"]}
    # kubectl creates no role with a verb that it does not know.
    head = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": role}}
    admin.apply(head | {"rules": [rule]})
    admin("create", "rolebinding", role, f"--role={role}", who)


def test_a_priority_class_is_used_by_whom_it_was_given_to(owner: Kubectl, admin: Kubectl, urgent: str) -> None:
    give_queue(admin, gpus=4)

    def made(name: str) -> dict[str, Any]:
        wanted = job(name, 1, pod_template(), QUEUE)
        wanted["metadata"]["labels"][names.PRIORITY_CLASS_LABEL] = urgent
        return wanted

    wait_until(lambda: owner.create(made("while-open")), what="everybody may use it")
    close(admin)

    def refused() -> bool:
        try:
            owner.create(made("closed"), "--dry-run=server")
        except KubectlError as error:
            return f"may not use WorkloadPriorityClass {urgent}" in error.stderr
        return False

    wait_until(refused, what="it is refused")
    owner.create(job("plain", 1, pod_template(), QUEUE))
    printed = owner.refused("label", "job", "plain", f"{names.PRIORITY_CLASS_LABEL}={urgent}")
    assert "may not use WorkloadPriorityClass" in printed
    owner("annotate", "job", "while-open", "note=what-has-a-class-keeps-it")
    user = f"--user={admin.namespace}-owner"
    grant(admin, user, "workloadpriorityclasses.kueue.x-k8s.io", urgent)
    wait_until(lambda: owner.create(made("given")), what="the right is in force")


def test_the_owner_of_a_refused_job_reads_the_classes_that_he_may_use_and_only_those(
    owner: Kubectl, admin: Kubectl, urgent: str
) -> None:
    low, mid, high = classes = [f"{admin.namespace}-{name}" for name in ("low", "mid", "high")]
    for number, name in enumerate(classes):
        admin.apply({"apiVersion": KUEUE, "kind": "WorkloadPriorityClass", "metadata": {"name": name}, "value": number})
        head = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}}
        admin.apply(head | {"value": number})
    user = f"--user={admin.namespace}-owner"
    grant(admin, user, "workloadpriorityclasses.kueue.x-k8s.io", low, mid)
    grant(admin, user, "priorityclasses.scheduling.k8s.io", low)
    close(admin)
    by_label, by_template = job("by-label", 1, pod_template(), QUEUE), job("by-template", 1, pod_template(), QUEUE)
    by_label["metadata"]["labels"][names.PRIORITY_CLASS_LABEL] = urgent
    by_template["spec"]["template"]["spec"]["priorityClassName"] = high

    def usable_instead(refused: dict[str, Any]) -> list[str]:
        stderr = owner.refused("create", "--dry-run=server", "-f", "-", stdin=yaml.safe_dump(refused))
        assert "may not use" in stderr
        return sorted(re.findall(r"Warning: .* may use (\S+ \S+)", stderr))

    usable = [f"WorkloadPriorityClass {low}", f"WorkloadPriorityClass {mid}"]
    wait_until(lambda: usable_instead(by_label) == usable, what="those that he may use are named")
    wait_until(lambda: usable_instead(by_template) == [f"PriorityClass {low}"], what="so is the PriorityClass")
    by_label["metadata"]["labels"][names.PRIORITY_CLASS_LABEL] = low
    owner.create(by_label)
    assert "may use" not in owner.warnings
    admin.delete("workloadpriorityclass", *classes)
    admin.delete("priorityclass", *classes)


def test_many_pod_templates_name_one_class_that_was_given_and_each_of_some_is_judged(
    owner: Kubectl, admin: Kubectl, urgent: str
) -> None:
    """The API server pays for two checks of a right in one expression."""
    name = f"{admin.namespace}-given"
    head = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}}
    admin.apply(head | {"value": 1})
    give_queue(admin, gpus=8)
    # Rights to what does not exist are rights too.
    given = [name, *(f"given-{number}" for number in range(3))]
    grant(admin, f"--user={admin.namespace}-owner", "priorityclasses.scheduling.k8s.io", *given)
    close(admin)

    def made(*named: str) -> dict[str, Any]:
        wanted = jobset("crowd", 1, pod_template(), QUEUE)
        (workers,) = wanted["spec"]["replicatedJobs"]
        wanted["spec"]["replicatedJobs"] = []
        for number, each in enumerate(named):
            part: dict[str, Any] = copy.deepcopy(workers) | {"name": f"part-{number}"}
            part["template"]["spec"]["template"]["spec"]["priorityClassName"] = each
            wanted["spec"]["replicatedJobs"].append(part)
        return wanted

    def said(*named: str) -> str:
        return owner.refused("create", "--dry-run=server", "-f", "-", stdin=yaml.safe_dump(made(*named)))

    wait_until(lambda: "may not use PriorityClass other " in said(*given[:3], "other"), what="it is refused")
    assert "may not use PriorityClass other " in said(*[name] * 7, "other")
    assert "at most 4 different PriorityClass" in said(*given, "other")
    owner.create(made(*[name] * 8))
    admin.delete("priorityclass", name)


def test_jobs_of_a_cron_job_have_a_class_once_the_service_account_may_use_it_and_those_of_a_job_set_at_once(
    owner: Kubectl, admin: Kubectl, urgent: str
) -> None:
    give_queue(admin, gpus=8)
    head = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": urgent}}
    admin.apply(head | {"value": 1})
    resources = ("workloadpriorityclasses.kueue.x-k8s.io", "priorityclasses.scheduling.k8s.io")
    for resource in resources:
        grant(admin, f"--user={admin.namespace}-owner", resource, urgent)
    close(admin)
    template = pod_template()
    template["spec"]["priorityClassName"] = urgent
    nightly, whole = job("nightly", 1, template, QUEUE), jobset("set", 2, template, QUEUE)
    for made in (nightly, whole):
        made["metadata"]["labels"][names.PRIORITY_CLASS_LABEL] = urgent
    # On its children it means nothing, and is judged for nobody.
    whole["spec"]["replicatedJobs"][0]["template"]["metadata"] = {"labels": {names.PRIORITY_CLASS_LABEL: urgent}}
    inner = {"metadata": {"labels": nightly["metadata"]["labels"]}, "spec": nightly["spec"]}
    spec = {"schedule": "* * * * *", "concurrencyPolicy": "Forbid", "jobTemplate": inner}

    def refused() -> bool:
        other = copy.deepcopy(nightly)
        other["spec"]["template"]["spec"]["priorityClassName"] = "other"
        return "may not use" in owner.refused("create", "--dry-run=server", "-f", "-", stdin=yaml.safe_dump(other))

    wait_until(refused, what="the rights are in force")
    owner.apply({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "nightly"}, "spec": spec})
    wait_until(lambda: owner.create(whole), what="its owner may use the class")
    wait_until(lambda: len(owner.pods(phase="Running")) == 2, 60, "the JobSet's pods run")

    def why() -> str:
        return next((each for each in told(owner, "nightly") if "may not use" in each), "")

    assert "the service account default may not use" in wait_until(why, 120, "the CronJob's owner is told")
    for resource in resources:
        plural = resource.partition(".")[0]
        account = f"--serviceaccount={admin.namespace}:default"
        admin("create", "rolebinding", f"default-{plural}", f"--role=use-{plural}", account)
    wait_until(lambda: len(owner.pods(phase="Running")) == 3, 120, "its Job runs")
    owner.delete("cronjob", "nightly")
    admin.delete("priorityclass", urgent)


def test_plain_pods_of_a_group_take_no_priority_class_that_was_not_given(
    owner: Kubectl, admin: Kubectl, urgent: str
) -> None:
    """Their gang has the priority that they name; no job is there to be judged."""
    give_queue(admin, gpus=4)
    close(admin)
    labels = {names.POD_GROUP_LABELS[0]: "crew", names.QUEUE_LABELS[0]: QUEUE}

    def made(name: str, **more: str) -> dict[str, Any]:
        return pod(name, pod_template(labels={**labels, **more}))

    def refused() -> bool:
        try:
            owner.create(made("first", **{names.PRIORITY_CLASS_LABEL: urgent}), "--dry-run=server")
        except KubectlError as error:
            return f"may not use WorkloadPriorityClass {urgent}" in error.stderr
        return False

    wait_until(refused, what="it is refused")
    owner.create(made("second"))
    printed = owner.refused("label", "pod", "second", f"{names.PRIORITY_CLASS_LABEL}={urgent}")
    assert "may not" in printed
    owner.apply(job("train", 1, pod_template(), QUEUE))
    wait_until(lambda: owner.pods("job-name=train", phase="Running"), what="pods of jobs are not judged again")


def test_a_kind_without_pod_templates_takes_no_priority_class_that_was_not_given(
    cluster: AnyCluster, owner: Kubectl, admin: Kubectl, urgent: str
) -> None:
    for project in ("spark", "argo"):
        cluster.install_kinds(project)
    close(admin)
    pods = {"spec": {"priorityClassName": urgent, "containers": [{"name": "spark-kubernetes-driver"}]}}
    program = {"type": "Python", "mode": "cluster", "sparkVersion": "4.0.0", "mainApplicationFile": "local:///a.py"}
    program["image"] = "registry.example/spark:1"
    executor = {"cores": 1, "memory": "1g", "instances": 1}
    spark = {
        "apiVersion": "sparkoperator.k8s.io/v1beta2",
        "kind": "SparkApplication",
        "metadata": {"name": "spark"},
        "spec": program | {"driver": {"cores": 1, "memory": "1g", "template": pods}, "executor": executor},
    }
    steps = [{"name": "main", "priorityClassName": urgent, "container": {"image": "registry.example/step:1"}}]
    workflow = {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Workflow",
        "metadata": {"name": "steps"},
        "spec": {"entrypoint": "main", "templates": steps, "suspend": True},
    }
    said = f"may not use PriorityClass {urgent}"
    for manifest in (spark, workflow):
        refused = partial(owner.refused, "create", "--dry-run=server", "-f", "-", stdin=yaml.safe_dump(manifest))
        wait_until(lambda: said in refused(), what=f"{manifest['kind']} is refused")  # noqa: B023 - called at once


def test_a_cluster_queue_is_used_by_whom_it_was_given_to(owner: Kubectl, admin: Kubectl, urgent: str) -> None:
    cluster_queue = give_queue(admin, gpus=4)
    user = f"--user={admin.namespace}-owner"
    admin("create", "role", "queues", "--verb=create,patch,get", "--resource=localqueues.kueue.x-k8s.io")
    admin("create", "rolebinding", "queues", "--role=queues", user)
    close(admin)
    mine = {
        "apiVersion": KUEUE,
        "kind": "LocalQueue",
        "metadata": {"name": "mine"},
        "spec": {"clusterQueue": cluster_queue},
    }

    def refused() -> bool:
        try:
            owner.create(mine, "--dry-run=server")
        except KubectlError as error:
            return f"may not use ClusterQueue {cluster_queue}" in error.stderr
        return False

    wait_until(refused, what="the queue is nobody's to use")
    grant(admin, user, "clusterqueues.kueue.x-k8s.io", cluster_queue)
    wait_until(lambda: owner.create(mine), what="the right is in force")
    theirs = mine | {"metadata": {"name": "other"}, "spec": {"clusterQueue": "theirs"}}
    printed = owner.refused("create", "-f", "-", stdin=yaml.safe_dump(theirs))
    assert "may not use ClusterQueue theirs" in printed
    assert re.findall(r"Warning: .* may use (\S+ \S+)", printed) == [f"ClusterQueue {cluster_queue}"]
