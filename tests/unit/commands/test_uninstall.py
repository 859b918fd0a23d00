"""Uninstalling gives every job back as its owner wrote it, and refuses while Tutti would undo that."""

import asyncio
import io
import json
from copy import deepcopy
from random import Random
from typing import Any

import pytest
import yaml
from rich.console import Console

from tests.unit.jobs.objects_of_kinds import special
from tests.unit.laboratory.simulated.clients import JOBS, Client, job
from webhook.commands.installed import stored_config
from webhook.commands.uninstall import Removal, restoring_patch
from webhook.config import Config
from webhook.core.notation import names
from webhook.errors import Conflict, NotFound
from webhook.jobs.kinds.custom_kinds import load_custom
from webhook.jobs.kinds.registry import KINDS
from webhook.jobs.patches.marking import marked as held_by_us
from webhook.jobs.pricing.context import NO_CONTEXT, context_from
from webhook.jobs.reading.ours import OWN_ANNOTATIONS
from webhook.kube.election import LeaderRecord, render
from webhook.laboratory.simulated.cluster import SimulatedCluster
from webhook.laboratory.simulated.objects.resources import Resource

pytestmark = pytest.mark.virtual_time
JOB = KINDS["Job.batch"]
LEDGER = "/api/v1/namespaces/tutti-system/configmaps"


def marked(written: Any) -> Any:
    """The job as the webhook stores it."""
    return dict(held_by_us(JOB, written))


def suspended(name: str, **annotations: str) -> Any:
    obj = job(name, suspend=True)
    obj["metadata"]["annotations"] = annotations
    return obj


async def cluster() -> tuple[SimulatedCluster, Client]:
    made = SimulatedCluster(Random(3), namespaces=["team-a", "tutti-system"])
    for name in ("default", "team-a", "tutti-system"):
        await made.create({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": name}})
    return made, Client(made.api())


async def remove(client: Client, *, dry_run: bool = False, config: Config | None = None) -> str:
    out = io.StringIO()
    await Removal(client.api, config or Config(), Console(file=out, width=200), dry_run=dry_run).run()
    return out.getvalue()


def written(stored: Any) -> Any:
    """What of a stored job its owner can have written."""
    return {"annotations": stored["metadata"].get("annotations"), "spec": stored["spec"]}


async def test_a_waiting_job_is_let_go_as_its_owner_wrote_it() -> None:
    _, client = await cluster()
    plain = await client.post(JOBS, job("plain"))
    await client.post(JOBS, marked(job("waiting")))
    text = await remove(client)
    assert "Job team-a/waiting: un-suspend, remove Tutti's labels and annotations" in text
    found = await client.get(f"{JOBS}/waiting")
    expected = deepcopy(written(plain))
    found["spec"]["suspend"] = found["spec"].get("suspend") or False
    expected["spec"]["suspend"] = expected["spec"].get("suspend") or False
    for spec in (found["spec"], expected["spec"]):
        spec.pop("selector", None)
        spec["template"]["metadata"].pop("labels", None)
    assert written(found) == expected
    assert not any(
        "tutti.dev" in key
        for key in (await client.get(f"{JOBS}/waiting"))["spec"]["template"]["metadata"].get("labels", {})
    )


async def test_what_its_owner_suspended_stays_suspended() -> None:
    _, client = await cluster()
    applied_text = json.dumps({"spec": {"suspend": True}})
    wished = marked(suspended("wished", **{"kubectl.kubernetes.io/last-applied-configuration": applied_text}))
    await client.post(JOBS, wished)
    foreign = suspended("foreign")
    await client.post(JOBS, foreign)
    held = await client.post(JOBS, marked(job("held")))
    uid = held["metadata"]["uid"]
    await client.merge(f"{JOBS}/held", {"metadata": {"annotations": {names.HOLD: json.dumps({"uid": uid})}}})
    assert "Job team-a/held: remove Tutti's labels and annotations, leave it suspended" in await remove(client)
    for name in ("wished", "foreign", "held"):
        stored = await client.get(f"{JOBS}/{name}")
        assert stored["spec"]["suspend"] is True, name
        assert not OWN_ANNOTATIONS & (stored["metadata"].get("annotations") or {}).keys()


@pytest.mark.parametrize(("mark", "starts"), [(None, False), (names.PERMIT, True), (names.GIVEN_UP, False)])
async def test_a_copy_of_a_hub_starts_by_its_permit_alone(mark: str | None, starts: bool) -> None:
    _, client = await cluster()
    copy = suspended("copy", **{names.OFFER: "job-1 1.1"})
    stored = await client.post(JOBS, marked(copy))
    uid = stored["metadata"]["uid"]
    notes = {names.OFFER: "job-1 1.1"}
    if mark is not None:
        notes |= {names.PERMIT: f"job-1 1.1 {uid}", mark: uid if mark == names.GIVEN_UP else f"job-1 1.1 {uid}"}
        await client.merge(f"{JOBS}/copy", {"metadata": {"annotations": notes}})
    await remove(client)
    found = await client.get(f"{JOBS}/copy")
    assert bool(found["spec"].get("suspend")) is not starts
    assert found["metadata"]["annotations"] == notes, "its hub, and a Tutti that is installed again, go by them"


async def test_a_running_job_runs_on_without_our_annotations() -> None:
    _, client = await cluster()
    stored = await client.post(JOBS, job("running"))
    text = json.dumps({"uid": stored["metadata"]["uid"], "epoch": 1, "seq": 1, "queue": "q", "counts": {"main": 2}})
    await client.merge(f"{JOBS}/running", {"metadata": {"annotations": {names.ADMISSION: text, "theirs": "1"}}})
    assert "Job team-a/running: remove Tutti's labels and annotations\n" in await remove(client)
    found = await client.get(f"{JOBS}/running")
    assert found["metadata"]["annotations"] == {"theirs": "1"}
    assert not found["spec"].get("suspend")


async def test_a_dry_run_says_everything_and_writes_nothing() -> None:
    _, client = await cluster()
    before = await client.post(JOBS, marked(job("waiting")))
    assert "1 object would be written" in await remove(client, dry_run=True)
    assert await client.get(f"{JOBS}/waiting") == before


SWEEP = {
    "group": "example.com",
    "version": "v1",
    "kind": "Sweep",
    "plural": "sweeps",
    "suspend": "spec.suspend",
    "podSets": [{"template": "spec.template", "count": "spec.size"}],
    "succeeded": {"condition": "Done"},
}


@pytest.mark.parametrize("stored", [True, False], ids=["stored in the cluster", "given as a file"])
async def test_objects_of_an_operators_own_kind_are_given_back_too(stored: bool) -> None:
    made, client = await cluster()
    made.server.registry.add(Resource("example.com", "v1", "sweeps", "Sweep", True, True, custom=True))
    config = Config(kinds=(SWEEP,))
    if stored:
        metadata = {"name": "tutti-config", "namespace": "tutti-system"}
        data = {"config.yaml": yaml.safe_dump({"kinds": [SWEEP]})}
        await client.post(LEDGER, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})
        config = await stored_config(client.api)
    sweeps = "/apis/example.com/v1/namespaces/team-a/sweeps"
    template = {"spec": {"containers": [{"name": "main", "image": "example.com/sweep"}]}}
    written = {
        "apiVersion": "example.com/v1",
        "kind": "Sweep",
        "metadata": {"name": "sweep", "namespace": "team-a", "labels": {"tutti.dev/queue-name": "research"}},
        "spec": {"size": 2, "template": template},
    }
    await client.post(sweeps, dict(held_by_us(load_custom(SWEEP, KINDS), written)))
    assert (await client.get(f"{sweeps}/sweep"))["spec"]["suspend"] is True
    await remove(client, config=config)
    assert (await client.get(f"{sweeps}/sweep"))["spec"] == written["spec"] | {"suspend": False}


async def test_a_train_job_loses_what_was_added_to_the_pods_of_its_runtime() -> None:
    made, client = await cluster()
    group, runtimes = "trainer.kubeflow.org", "/apis/trainer.kubeflow.org/v1alpha1/clustertrainingruntimes"
    for plural, kind, namespaced in (
        ("trainjobs", "TrainJob", True),
        ("clustertrainingruntimes", "ClusterTrainingRuntime", False),
    ):
        made.server.registry.add(Resource(group, "v1alpha1", plural, kind, namespaced, custom=True))
    runtime, train_job = special("runtime"), special("trainjob")
    train_job["metadata"] = {"name": "fine-tune", "namespace": "team-a"}
    await client.post(runtimes, runtime)
    held = held_by_us(KINDS["TrainJob.trainer.kubeflow.org"], train_job, context_from(training_runtimes=[runtime]))
    place = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/team-a/trainjobs"
    stored = await client.post(place, dict(held))
    assert names.GANG_LABEL in str(stored["spec"])
    await remove(client)
    assert (await client.get(f"{place}/fine-tune"))["spec"] == train_job["spec"] | {"suspend": False}


async def test_without_a_stored_configuration_the_defaults_hold() -> None:
    _, client = await cluster()
    assert await stored_config(client.api) == Config()


async def test_a_second_run_finds_nothing_to_do() -> None:
    _, client = await cluster()
    await client.post(JOBS, marked(job("waiting")))
    await remove(client)
    assert "0 objects written" in await remove(client)


async def test_namespaces_lose_our_labels_only() -> None:
    _, client = await cluster()
    labels = {names.GATED_NAMESPACE: "true", names.FENCED_NAMESPACE: "true", "team": "a"}
    await client.merge("/api/v1/namespaces/team-a", {"metadata": {"labels": labels}})
    await remove(client)
    assert (await client.get("/api/v1/namespaces/team-a"))["metadata"]["labels"]["team"] == "a"
    assert not any("tutti.dev" in key for key in (await client.get("/api/v1/namespaces/team-a"))["metadata"]["labels"])


async def test_a_gated_pod_loses_our_gate_and_keeps_others() -> None:
    _, client = await cluster()
    container = {"name": "main", "image": "example.com/train"}
    gates = [{"name": "example.com/theirs"}, {"name": names.SCHEDULING_GATE}]
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "gated", "labels": {names.GANG_LABEL: "pending"}},
        "spec": {"containers": [container], "schedulingGates": gates},
    }
    await client.post("/api/v1/namespaces/team-a/pods", pod)
    await remove(client)
    found = await client.get("/api/v1/namespaces/team-a/pods/gated")
    assert found["spec"]["schedulingGates"] == gates[:1]


def ledger(holder: str, renewed: str = "now") -> Any:
    text = render(LeaderRecord(holder, 6.0, "then", renewed, 1))
    metadata = {"name": "tutti-ledger", "annotations": {names.LEASE_ANNOTATION: text}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {}}


async def test_it_refuses_while_a_reconciler_renews_its_lease() -> None:

    _, client = await cluster()
    await client.post(LEDGER, ledger("reconciler-0"))
    await client.post(JOBS, marked(job("waiting")))

    async def renew() -> None:
        await asyncio.sleep(2)
        await client.merge(f"{LEDGER}/tutti-ledger", ledger("reconciler-0", "later"))

    renewing = asyncio.create_task(renew())
    with pytest.raises(Conflict, match="reconciler-0 holds the lease"):
        await remove(client)
    await renewing
    assert (await client.get(f"{JOBS}/waiting"))["spec"]["suspend"] is True


@pytest.mark.parametrize("holder", ["", "reconciler-that-was-killed"])
async def test_a_lease_that_was_released_or_is_not_renewed_is_no_hindrance(holder: str) -> None:
    _, client = await cluster()
    await client.post(LEDGER, ledger(holder))
    await client.post(JOBS, marked(job("waiting")))
    assert "1 object written" in await remove(client)


async def test_it_refuses_while_the_webhook_is_registered() -> None:
    _, client = await cluster()
    registration = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "tutti"},
        "webhooks": [],
    }
    await client.post("/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", registration)
    with pytest.raises(Conflict, match="validatingwebhookconfigurations/tutti is still registered"):
        await remove(client)
    assert "would refuse: validatingwebhookconfigurations/tutti" in await remove(client, dry_run=True)


@pytest.mark.parametrize("admitted", [True, False])
def test_what_its_owner_paused_stays_so_and_what_only_waited_goes(admitted: bool) -> None:
    kind = KINDS["Workflow.argoproj.io"]
    notes = {names.REQUEUE: "{}"}
    if admitted:
        notes = {names.ADMISSION: '{"uid":"u","epoch":1,"seq":1,"queue":"jobs","counts":{"main":3},"since":1.0}'}
    metadata = {"name": "flow", "uid": "u", "resourceVersion": "1", "annotations": notes}
    stored = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "metadata": metadata, "spec": {"suspend": True}}
    patch = restoring_patch(kind, stored, KINDS, NO_CONTEXT)
    assert ("/spec/suspend" in {each["path"] for each in patch}) is not admitted


async def test_a_job_that_changes_meanwhile_is_looked_at_again() -> None:
    _, client = await cluster()
    stored = await client.post(JOBS, marked(job("waiting")))
    patch = restoring_patch(JOB, stored, KINDS, NO_CONTEXT)
    await client.merge(f"{JOBS}/waiting", {"metadata": {"labels": {"theirs": "1"}}})
    with pytest.raises(Conflict):
        await client.json_patch(f"{JOBS}/waiting", patch)
    assert "1 object written" in await remove(client)


async def test_a_kind_that_is_not_served_is_passed_over() -> None:
    _, client = await cluster()
    with pytest.raises(NotFound):
        await client.get("/apis/sparkoperator.k8s.io/v1beta2/nothings")
    assert "0 objects written" in await remove(client)
