"""What a process would know of a cluster that holds nothing but the objects of some files.

The same readers as in production make policy, fences, prices and gangs of them. Two things are taken for granted: the
namespaces that gangs name exist, and the labels that Tutti itself writes on namespaces are written.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from webhook.cluster import rebuild
from webhook.cluster.view import View
from webhook.cluster.waiting import waiting_gang
from webhook.config import Config, engine_settings
from webhook.controllers.loop import namespaces
from webhook.core.ledger.record import Reservation
from webhook.core.model.gang import Gang
from webhook.core.notation import quantity
from webhook.core.notation.problem import Problem, Unreadable
from webhook.core.reasons.reasons import Reason
from webhook.dialects import compiler, resource_quota
from webhook.jobs.kinds.kind import JobKind
from webhook.jobs.kinds.registry import with_custom
from webhook.jobs.pricing.context import ReadContext, with_injections
from webhook.jobs.reading import gating
from webhook.jobs.reading import job as reading
from webhook.jobs.reading.network_topology import tiers
from webhook.jobs.reading.record import JobRecord
from webhook.laboratory.dry_run.files import classes, status_rules
from webhook.laboratory.dry_run.files import objects as files
from webhook.laboratory.dry_run.files.belonging import belonging, key_of, owned_by
from webhook.laboratory.dry_run.files.nodes import read_nodes
from webhook.laboratory.dry_run.files.objects import Object, label
from webhook.laboratory.dry_run.files.pods import read_pod_groups, read_pods
from webhook.laboratory.dry_run.workloads import reading as workloads
from webhook.laboratory.dry_run.workloads.entrant import Entrant, Skipped, Surroundings
from webhook.untyped import paths

_CLUSTER_WIDE: Final = frozenset({"PriorityClass", "RuntimeClass", "ClusterTrainingRuntime", "Namespace", "Node"})


@dataclass(slots=True)
class World:
    """Everything that files state."""

    view: View = field(default_factory=lambda: View(name="dry-run"))
    entrants: dict[str, Entrant] = field(default_factory=dict)
    """By uid, in the order in which they were read."""
    skipped: list[Skipped] = field(default_factory=list)
    consumed: dict[tuple[str, str], dict[str, float]] = field(default_factory=dict)
    """LocalQueue (namespace, name) to what its status says that it consumed, in whole units."""
    followers: dict[str, list[str]] = field(default_factory=dict)
    """Uids of pods by those of the objects above them, for jobs that run without our label on their pods."""
    problems: list[Problem] = field(default_factory=list)


def build(objects: Iterable[Object], config: Config, now: float) -> World:
    """Return the world that ``objects`` state at Unix time ``now``. Raises WrongInput for wrong custom kinds."""
    kinds = with_custom(config.kinds)
    world = World()
    policy_files = files.sort_policy(files.named(objects, world.problems))
    world.problems += policy_files.problems
    world.view.policy = compiler.compile_policy(policy_files.objects)
    world.problems += world.view.policy.problems
    _read_usage(world, policy_files.objects)
    for quota in policy_files.quotas:
        fence = resource_quota.compile_object(quota)[0]
        if fence is not None:
            world.view.fences.put_fence(fence)
    by_kind: dict[str, list[Object]] = {}
    gangs: list[Object] = []
    for obj in policy_files.others:
        known = (files.group_of(obj), obj["kind"])
        if known == (workloads.GROUP, workloads.KIND.kind) or f"{known[1]}.{known[0]}" in kinds:
            gangs.append(_identified(_in_namespace(obj)))
        else:
            by_kind.setdefault(obj["kind"], []).append(_in_namespace(obj))
    pods, nodes = by_kind.pop("Pod", []), by_kind.pop("Node", [])
    world.problems += read_pod_groups(world.view, by_kind.pop("PodGroup", []))
    _read_namespaces(world, by_kind.pop("Namespace", []), [*gangs, *pods, *policy_files.quotas])
    ranked_with = {kind: by_kind.pop(kind, []) for kind in classes.KINDS}
    context, problems = classes.read(ranked_with, dict(world.view.policy.priority_classes))
    world.problems += problems
    context = replace(context, network_tiers=tiers(config.network_tiers, world.view.policy.hyper_nodes))
    context = with_injections(context, config.added_containers, world.view.namespaces)
    settings = engine_settings(config)
    around = Surroundings(
        context, world.view.policy, settings, now, config.starting_in_kueue, config.wait_for_pods_ready is not None
    )
    whose = belonging([*gangs, *(obj for found in by_kind.values() for obj in found)])
    pods = [_identified(pod) for pod in pods]
    for pod in pods:
        for uid in whose.owners(pod):
            world.followers.setdefault(uid, []).append(pod["metadata"]["uid"])
    groups, problems = read_pods(world.view, pods, kinds, around.context, whose)
    world.problems += problems
    world.problems += read_nodes(world.view, nodes, config.exempt_namespaces)
    _read_gangs(world, gangs, kinds, around, groups)
    world.skipped += [
        Skipped(label(obj), "is not a kind that Tutti decides about") for found in by_kind.values() for obj in found
    ]
    return world


# -- objects ----------------------------------------------------------------------------------------------------------


def _in_namespace(obj: Object) -> Object:
    """Return the object in the namespace that kubectl would put it into."""
    return obj if obj["kind"] in _CLUSTER_WIDE else files.in_namespace(obj)


def _identified(obj: Object) -> Object:
    """Return the object with a uid: where it has none, one that is the same in every run."""
    metadata = obj["metadata"]
    if isinstance(metadata.get("uid"), str) and metadata["uid"]:
        return obj
    uid = f"{metadata['namespace']}/{metadata['name']}"
    uid = uid if obj["kind"] == workloads.KIND.kind else f"{uid} {obj['kind']}"
    return {**obj, "metadata": {**metadata, "uid": uid}}


# -- what gangs are read with -----------------------------------------------------------------------------------------


def _read_namespaces(world: World, written: Iterable[Object], others: Iterable[Object]) -> None:
    view = world.view
    for obj in written:
        labels = obj["metadata"].get("labels")
        view.namespaces[obj["metadata"]["name"]] = dict(labels) if isinstance(labels, dict) else {}
    for obj in others:
        view.namespaces.setdefault(str(_in_namespace(obj)["metadata"]["namespace"]), {})
    for name, labels in view.namespaces.items():
        view.namespaces[name] = {"kubernetes.io/metadata.name": name, **labels}


def _read_usage(world: World, objects: Iterable[Object]) -> None:
    """Read what Kueue's admission fair sharing has written on LocalQueues."""
    for obj in objects:
        path = ("status", "fairSharing", "admissionFairSharingStatus", "consumedResources")
        for name, amount in paths.find_mapping(obj, path).items() if obj["kind"] == "LocalQueue" else ():
            try:
                used = quantity.parse(amount) / quantity.MILLI
            except quantity.QuantityError as error:
                where = f"{label(obj)}#/{'/'.join(path)}/{name}"
                world.problems.append(error.problem.within(where))
                continue
            key = (str(obj["metadata"].get("namespace")), obj["metadata"]["name"])
            world.consumed.setdefault(key, {})[str(name)] = used


# -- gangs ------------------------------------------------------------------------------------------------------------


def _read_gangs(
    world: World, gangs: list[Object], kinds: Mapping[str, JobKind], around: Surroundings, groups: list[JobRecord]
) -> None:
    told = {owned_by(obj): label(obj) for obj in gangs if obj["kind"] == workloads.KIND.kind}
    jobs = list(groups)
    for obj in gangs:
        uid = obj["metadata"]["uid"]
        if uid in world.entrants or uid in world.view.jobs:
            text = "another object has this uid"
            world.problems.append(Problem(f"{label(obj)}#/metadata/uid", uid, text, "give each its own, or none"))
            continue
        try:
            if obj["kind"] == workloads.KIND.kind:
                wrong = status_rules.problems_of(obj)
                world.problems += wrong
                if not wrong:
                    _put(world, obj, workloads.read(obj, around))
            elif key_of(obj) in told:
                world.skipped.append(Skipped(label(obj), f"is decided about as {told[key_of(obj)]}"))
            else:
                record = _record(world, kinds[f"{obj['kind']}.{files.group_of(obj)}"], obj, kinds, around.context)
                if record is not None:
                    world.view.put_job(record)
                    jobs.append(record)
        except Unreadable as error:
            world.problems.append(error.problem.within(f"{label(obj)}#"))
    world.view.namespaces.update(_labelled(world.view, jobs))
    _read_jobs(world, jobs, around)


def _put(world: World, obj: Object, read: Entrant | str) -> None:
    if isinstance(read, str):
        world.skipped.append(Skipped(label(obj), read))
    else:
        world.entrants[read.gang.uid] = read


def _record(
    world: World, kind: JobKind, obj: Object, kinds: Mapping[str, JobKind], context: ReadContext
) -> JobRecord | None:
    """Return a job that waits or runs; None when there is nothing to decide about it. Raises Unreadable."""
    view = world.view
    namespace = obj["metadata"]["namespace"]
    gate = gating.gated_by(kind, obj, view.namespaces.get(namespace, {}), view.policy.namespace_queues, kinds=kinds)
    record = reading.read(kind, obj, context, kinds)
    if gate is not None and not record.marked:
        # It is new to the webhook, which would write the label.
        queued = gating.with_default_queue(kind, obj, view.namespaces.get(namespace, {}), view.policy)
        record = reading.read(kind, queued, context, kinds)
    why = None
    if gate is None and record.admission is None:
        why = "has no queue and no PodGroup, and its namespace does not gate jobs: it starts without Tutti"
        if gating.is_child(kind, obj, kinds):
            why = "belongs to the gang of its owner"
        elif record.managed_by_other:
            why = "is managed by another controller"
    elif record.finished is not None and not view.present(namespace, record.uid):
        why = f"has ended ({record.finished}): it holds nothing and does not wait"
    elif record.held and record.admission is None:
        why = "is held by its owner"
    if why is not None:
        world.skipped.append(Skipped(label(obj), why))
        return None
    if record.gang is None:
        assert record.problem is not None
        raise Unreadable.of(record.problem)
    return record


def _labelled(view: View, jobs: list[JobRecord]) -> dict[str, Mapping[str, str]]:
    """Return the namespaces as Tutti labels them."""
    wanted = namespaces.wanted_labels(view, {job.namespace for job in jobs} | set(view.namespaces))
    return {name: {**view.namespaces.get(name, {}), **labels} for name, labels in wanted.items()}


def _read_jobs(world: World, jobs: list[JobRecord], around: Surroundings) -> None:
    view = world.view
    reserved: dict[str, Reservation] = dict(rebuild.rebuilt_ledger(view, None).entries)
    for job in jobs:
        if job.gang is None:
            assert job.problem is not None
            world.problems.append(job.problem.within(f"PodGroup {job.key}"))
            continue
        reservation = reserved.get(job.uid)
        if reservation is None and job.active and not job.suspended and job.admission is None:
            reservation = rebuild.adopted(job, job.gang, view, around.settings, 1, around.now)
        waiting = waiting_gang(job, view)
        gang = waiting if isinstance(waiting, Gang) else view.with_quorum(job.gang)
        given_back = {} if reservation is None else job.given_back(reservation)
        withheld = waiting if isinstance(waiting, Reason) else None
        if reservation is not None:
            reservation = replace(reservation, since_seconds=reservation.since_seconds or around.now)
        world.entrants[job.uid] = Entrant(gang, reservation, given_back, withheld, leaves=job.finished is not None)
