"""Makes a ledger from the jobs and pods: when it is missing, corrupt or edited by somebody else, and at installation.

Absent is not empty. Nothing is admitted meanwhile. Jobs whose annotation names their own uid are adopted with what it
says; every gated job that is stored suspended is written once (ledger rule 4), so that no start that an earlier leader
sent can land after the new ledger stands; only then is it written, with an epoch above every one ever seen.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice
from typing import Final

from webhook.cluster.view import View
from webhook.core.assignment.request import compile_request
from webhook.core.ledger.record import Ledger, Reservation, reserve, with_places
from webhook.core.model.gang import Gang
from webhook.core.model.pods import PodRecord
from webhook.core.model.settings import EngineSettings
from webhook.core.notation import names
from webhook.core.pod_group import ensemble
from webhook.core.reasons.eviction import HELD, REBUILT
from webhook.jobs.plain_pods.groups import POD_GROUP
from webhook.jobs.reading.record import Admission, JobRecord

SKIPPED_MAX: Final = 1 << 32
"""Leaderships, or writes of a ledger, of which no job tells: there are not as many in ten years."""
NAMED_MAX: Final = 3
"""Proofs of an old ledger that are looked for: each costs what making a reservation does."""


def rebuilt_ledger(view: View, last_known: Ledger | None) -> Ledger:
    """Return the ledger that the objects of ``view`` prove."""
    known = (view.ledger, last_known or view.ledger)
    epoch, seq = max(ledger.epoch for ledger in known), max(ledger.seq for ledger in known)
    epoch = max(epoch, _reached((start.epoch for start in _starts(view)), epoch))
    seq = max(seq, _reached((start.seq for start in _starts(view)), seq))
    entries = {}
    for job in view.jobs.values():
        reservation = None if job.kind in view.unread else _reservation(job, view, epoch + 1)
        if reservation is not None:
            entries[job.uid] = reservation
    for uid, entry in view.ledger.entries.items():
        # Nothing else says what the pods of a deleted job hold that outlive it, or one has that cannot be read now.
        outlives = uid not in view.jobs and view.present(entry.namespace, uid)
        if entry.kind in view.unread or outlives:
            entries[uid] = replace(entry, epoch=epoch + 1)
    return Ledger(epoch + 1, seq + 1, _with_quorum(entries, view))


def proved_seq(view: View) -> int:
    """Return the number of the last write of the ledger by which a job was started, though it was stopped since."""
    return _reached((start.seq for start in _starts(view)), view.ledger.seq)


def _starts(view: View) -> Iterator[Admission]:
    return (start for job in view.jobs.values() if (start := job.last_start) is not None)


def _reached(numbers: Iterable[int], known: int) -> int:
    """Return the highest of the numbers that jobs bear, 0 if there is none, where one was ``known`` to be reached.

    One far above all others was not written by us: no ledger could count on from it for long.
    """
    top, reached = known, 0
    for number in sorted(numbers):
        if number - top > SKIPPED_MAX:
            break
        top, reached = max(top, number), number
    return reached


def _with_quorum(entries: dict[str, Reservation], view: View) -> dict[str, Reservation]:
    """Return the entries, with those of every ensemble stopping that has too little left."""
    ensembles: dict[tuple[str, str, float], list[Reservation]] = {}
    for entry in entries.values():
        if entry.membership is not None:
            key = (entry.namespace, entry.membership.ensemble, entry.since_seconds)
            ensembles.setdefault(key, []).append(entry)
    for (namespace, name, since), found in ensembles.items():
        done = sum(_succeeded_pods(job, name, since) for job in view.jobs.values() if job.namespace == namespace)
        members = [ensemble.relieved(member, done) for member in found]
        whole = ensemble.stands(members)
        entries |= {m.uid: m if whole else replace(m, stopping=m.stopping or REBUILT) for m in members}
    return entries


def _succeeded_pods(job: JobRecord, name: str, since: float) -> int:
    """Return the pods that a job made up of an ensemble that started at ``since``, if it has succeeded."""
    started = job.admission
    if job.finished != "Succeeded" or started is None or started.membership is None:
        return 0
    return sum(started.counts.values()) if (started.membership.ensemble, started.since_seconds) == (name, since) else 0


def _reservation(job: JobRecord, view: View, epoch: int) -> Reservation | None:
    requeue, admission = job.requeue, job.last_start
    if admission is None or job.gang is None:
        return None
    if _present(job, view) == 0 and (job.finished is not None or job.deleting or (job.suspended and not job.active)):
        # Nor does the controller of one that is being deleted create any more, whatever keeps the object.
        return None
    stopping = None
    if job.suspended and job.finished is None and (job.gang.evictable or job.admission is None):
        # What was written when it was stopped, its back-off among it, stands as long as it is called the same. What
        # cannot be stopped is only paused by its owner.
        stopping = HELD if requeue is None or job.admission is not None else requeue.reason
    found = _as_it_runs(from_annotation(job, job.gang, admission, epoch, stopping), view)
    return replace(found, preemptible=view.policy.may_be_preempted(job.gang, found.queue))


def _as_it_runs(found: Reservation, view: View) -> Reservation:
    """Return a reservation that is charged at least what its pods ask, as long as there are any, and for all of these.

    What a LimitRange fills in may have changed since they were created, and what the gang grew by is written on its job
    only after it was reserved: they alone tell what they use.
    """
    pods = [pod for pod in view.fences.pods_of(found.namespace, found.uid) if not pod.terminal]
    pod_sets = []
    for pod_set in found.pod_sets:
        here = [pod for pod in pods if pod.pod_set == pod_set.name]
        asked = [pod.price.requests for pod in here if pod_set.charge is None]
        most = {name: max((each.get(name, 0) for each in asked), default=0) for name in pod_set.flavors}
        requests = pod_set.price.requests
        more = {name: amount for name, amount in most.items() if amount > requests.get(name, 0)}
        price = replace(pod_set.price, requests={**requests, **more}) if more else pod_set.price
        # Those that are being deleted have successors that take their places.
        count = max(pod_set.count, sum(pod.live and not pod.gated for pod in here))
        pod_sets.append(replace(pod_set, price=price, count=count))
    return replace(found, pod_sets=tuple(pod_sets))


def from_annotation(
    job: JobRecord, gang: Gang, admission: Admission, epoch: int, stopping: str | None = None
) -> Reservation:
    """Return the reservation that a job's annotation describes, at the job's present prices."""
    counts = {s.name: admission.counts.get(s.name, s.count) for s in gang.pod_sets}
    since, flavors, charges = admission.since_seconds, admission.flavors, admission.charges
    held = reserve(gang, admission.queue, counts, flavors, epoch, since, charges, admission.cohorts)
    return replace(
        with_places(held, {}, admission.domains),
        stopping=stopping,
        adopted=admission.adopted,
        preemptible=True,
        membership=admission.membership if job.finished is None else None,
    )


def adopted(  # noqa: PLR0917
    job: JobRecord, gang: Gang, view: View, settings: EngineSettings, epoch: int, now_seconds: float
) -> Reservation:
    """Return the reservation of a job that ran before Tutti gated it: all its pods, from each group's first flavor.

    What it is charged is stated: its pods bear no label that says of which pod set they are, so that nothing else would
    tell after the loss of the ledger what a LimitRange of then had filled in.
    """
    policy = view.policy
    queue_name = policy.queue_of(job.namespace, job.queue_label)
    queue = None if queue_name is None else policy.queues[queue_name]
    groups = () if queue is None else queue.resource_groups
    gang = _as_given(gang, view.unlabelled_pods(job.namespace, job.uid))
    charges = (None if queue is None else compile_request(gang, queue, policy.flavors, settings).charges) or {}
    first = {resource: group.flavors[0].flavor for group in groups if group.flavors for resource in group.resources}
    asked = {s.name: charges.get(s.name, s.price.requests) for s in gang.pod_sets}
    flavors = {name: _asked(first, gang, charge) for name, charge in asked.items()}
    stated = {name: {key: asked[name].get(key, 0) for key in taken} for name, taken in flavors.items() if taken}
    cohorts = () if queue is None else policy.cohorts_above(queue.cohort)
    return replace(
        reserve(gang, queue_name, gang.counts, flavors, epoch, now_seconds, stated, cohorts),
        adopted=True,
        preemptible=policy.may_be_preempted(gang, queue_name),
    )


def _as_given(gang: Gang, pods: Sequence[PodRecord]) -> Gang:
    """Return ``gang`` with what its pods that run ask at least: they may have been created under another LimitRange.

    Of which pod set each of them is nobody knows: what lacks is put on all alike.
    """
    more = {}
    for name in sorted({name for pod in pods for name in pod.price.requests}):
        used = sum(sorted((pod.price.requests.get(name, 0) for pod in pods), reverse=True)[: gang.pods])
        held = sum(s.price.requests.get(name, 0) * s.count for s in gang.pod_sets)
        if used > held:
            more[name] = -((held - used) // gang.pods)
    if not more:
        return gang
    raised = (
        {**s.price.requests, **{name: s.price.requests.get(name, 0) + amount for name, amount in more.items()}}
        for s in gang.pod_sets
    )
    sets = (replace(s, price=replace(s.price, requests=each)) for s, each in zip(gang.pod_sets, raised, strict=True))
    return replace(gang, pod_sets=tuple(sets))


def _asked(flavors: dict[str, str], gang: Gang, requests: Iterable[str]) -> dict[str, str]:
    per_gang = {"pods", names.MAX_JOBS, *((names.PREEMPTIBLE_JOBS,) if gang.preemptible else ())}
    return {resource: flavor for resource, flavor in flavors.items() if resource in requests or resource in per_gang}


def unheld(view: View, ledger: Ledger) -> list[str]:
    """Return the first few jobs, and pods of jobs that are gone, which hold something that ``ledger`` does not mention.

    No leader releases what is there still: that ledger is an old copy, or ``view`` is. One is enough to know.
    """
    jobs = (job for uid, job in view.jobs.items() if uid not in ledger.entries)
    proved = proved_seq(view)
    jobs = (job for job in jobs if job.is_ours and job.kind not in view.unread and _proves(job, view, ledger, proved))
    held = (job.key for job in jobs if _reservation(job, view, ledger.epoch) is not None)
    return list(islice(chain(held, _leaving(view, ledger)), NAMED_MAX))


def _proves(job: JobRecord, view: View, ledger: Ledger, proved: int) -> bool:
    """Return whether it bears a start that no ledger of that write has released: a newer one, one with pods left, or
    that of a job which is released only once it is suspended or has ended.

    A Workflow that has ended bears that of its first run, which says nothing when somebody has it run again.
    """
    start = job.last_start
    if start is None:
        return False
    # Between two of its pods, such as of a Job of more completions than it runs at a time, it has none.
    runs = job.admission is not None and not job.suspended and job.gang is not None and job.gang.evictable
    return _present(job, view) > 0 or ((runs or ledger.seq < start.seq) and start.seq <= proved)


def _present(job: JobRecord, view: View) -> int:
    return view.present(job.namespace, job.uid) + job.dispatched


def leaving(view: View, ledger: Ledger) -> list[str]:
    """Return the pods that are about to go while nothing in ``ledger`` says any more what their gang holds.

    Its job is deleted, and no process that knew its reservation leads. What nobody owns may run on for ever, and so may
    pods of a Job that was orphaned.
    """
    return list(_leaving(view, ledger))


def _leaving(view: View, ledger: Ledger) -> Iterator[str]:
    return (
        pod.key
        for namespace in sorted(view.namespaces)
        for pod in view.fences.pods(namespace)
        if pod.gang is not None and pod.gang not in view.jobs and pod.gang not in ledger.entries
        if not pod.terminal and not pod.gated
        if pod.terminating or (pod.owner_uid and not view.lineage.outlives(pod.owner_uid))
    )


def uncounted(view: View) -> list[str]:
    """Return the pods of gangs that a rebuilt ledger would not mention: their job is gone, or cannot be read.

    Of a gang whose pods are in another cluster its own name is returned.
    """
    pods = [
        pod.key
        for namespace in sorted(view.namespaces)
        for pod in view.fences.pods(namespace)
        if pod.gang is not None and not pod.terminal and not pod.gated
        if not _is_counted(pod.gang, view)
    ]
    return pods + [job.key for job in view.jobs.values() if job.dispatched and not _is_counted(job.uid, view)]


def _is_counted(uid: str, view: View) -> bool:
    job = view.jobs.get(uid)
    return uid in view.ledger.entries if job is None or job.kind in view.unread else job.gang is not None


def must_be_voided(job: JobRecord, view: View) -> bool:
    """Return whether a start that an earlier leader sent could still land on this job, or on pods that wait.

    One that cannot be read cannot be written either. Without a reservation none of its pods is let pass.
    """
    if job.kind in view.unread:
        return False
    if job.kind == POD_GROUP.key:
        return job.waiting_pods > 0
    return job.suspended and job.finished is None and job.owner is None and not job.deleting
