"""Events of a hub: on a job, where it runs, in ACK One's form; on a Secret, until when it is valid. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any, Final
from zlib import crc32

from webhook.core.fleet.dispatch import Dispatch
from webhook.core.fleet.sight import Sight
from webhook.core.notation import names
from webhook.core.notation.moments import time_text
from webhook.core.notation.shortened import shortened
from webhook.jobs.kinds.kind import JobKind
from webhook.jobs.pricing.context import NO_CONTEXT
from webhook.jobs.reading.job import read

REASON: Final = "ScheduleBindingSucceed"
UNREADABLE: Final = "DispatchUnreadable"
CHANGED: Final = "MemberChanged"
SILENT: Final = "MemberSilent"
KEPT: Final = "MemberKeepsJob"
UNPLACED: Final = "NoMember"
STOPPED: Final = "StoppedInMember"
FAILED: Final = "FailedInMember"
NEVER: Final = "NoMember, ever"
"""Told apart from the other by the hour, not by its reason."""
LEAVES: Final = "LeavesMember"
LACKING: Final = "DependencyMissing"
QUEUE_MISSING: Final = "QueueMissing"
STATUS_REFUSED: Final = "StatusRefused"
RECORD_REFUSED: Final = "DispatchRefused"
STRANGE_END: Final = "OperatorInHub"
STARTS_NOWHERE: Final = "it can start in no member that it may run in, whatever ends: change the job, or what they have"
REASON_CHARACTERS: Final = 200
"""Of what is wrong with a record."""
EVENT_CHARACTERS: Final = 1000
"""Of an event's message: the API server refuses more than 1 kB of newer events."""
UID_CHARACTERS: Final = 8
"""Of a job, in the name of its events."""
MEMBERS: Final = "tutti-hub-members"
"""The Secret of a hub's directory: one kubeconfig a member, named after it."""
_COMPONENT: Final = "tutti.dev/hub"
_NOT_SHOWN: Final = (
    "The API server of the hub refuses the status that {member} shows of this job: {why}. The job keeps its quota here "
    "until its end can be shown; if it has ended in {member}, delete it here"
)
_NOT_CLEARED: Final = (
    "The API server of the hub refuses to clear what this job shows of a run that is over: {why}. The job may keep its "
    "quota here, and not run again; if so, recreate it"
)


def bound(kind: JobKind, job: Mapping[str, Any], dispatch: Dispatch, now: float) -> dict[str, Any]:
    """Return the event that a granted gang has come into its member; one of an offer has always the same name."""
    gang = read(kind, job, NO_CONTEXT).gang
    sets = " ".join(f"{{{name} {count}}}" for name, count in ({} if gang is None else gang.counts).items())
    message = f"Binding has been scheduled successfully. Result: {{{dispatch.member}:0,[{sets}]}}"
    return _of_job(kind, job, str(dispatch.offer), now) | {"reason": REASON, "message": message, "type": "Normal"}


def unreadable(kind: JobKind, job: Mapping[str, Any], why: str, now: float) -> dict[str, Any]:
    """Return the event that a job's record cannot be read, so that it is offered to nobody; one an hour."""
    note = names.DISPATCH
    message = (
        f"{note}: {shortened(why, REASON_CHARACTERS)}. It is offered to no member until this annotation is removed"
    )
    told = {"reason": UNREADABLE, "message": message, "type": "Warning"}
    return _of_job(kind, job, f"unreadable.{int(now // 3600)}", now) | told


def record_refused(kind: JobKind, job: Mapping[str, Any], why: str, now: float) -> dict[str, Any]:
    """Return the event that a job's record cannot be stored, so that the job does not go on; one an hour."""
    message = (
        f"The API server of the hub does not store {names.DISPATCH} on this job: "
        f"{shortened(why, REASON_CHARACTERS)}. Until it does, the job is offered to no member and "
        "leaves none. If its annotations are too long, shorten the others"
    )
    told = {"reason": RECORD_REFUSED, "message": message, "type": "Warning"}
    return _while_so(kind, job, f"unstored.{int(now // 3600)}", now) | told


def changed(kind: JobKind, job: Mapping[str, Any], dispatch: Dispatch, now: float) -> dict[str, Any]:
    """Return the event that the name of a gang's member leads to another cluster than the gang's, and no member to that
    one; one an hour.
    """
    message = (
        f"{dispatch.member} now leads to a different cluster from the one that has this job. The job waits for the old "
        f"cluster; if that cluster will not come back: tutti fleet lost {dispatch.member} --cluster {dispatch.cluster}"
    )
    told = {"reason": CHANGED, "message": message, "type": "Warning"}
    return _while_so(kind, job, f"changed.{int(now // 3600)}", now) | told


def silent(kind: JobKind, job: Mapping[str, Any], dispatch: Dispatch, why: str, now: float) -> dict[str, Any]:
    """Return the event that a gang's member does not answer, so that the gang stays as it is; one an hour."""
    if promised := dispatch.stops_after_seconds:
        stays = (
            f"It has promised to stop the job after {promised} s of this; while fleet_dead_man is on, the job is then "
        )
        stays += "offered to others once its pods are surely gone. Without that it stays there until it answers"
    else:
        stays = "The job stays there until it answers"
    message = (
        f"{dispatch.member} {why}. {stays}; if it will not come back, shut it down for good, then: "
        f"tutti fleet lost {dispatch.member}"
    )
    told = {"reason": SILENT, "message": message, "type": "Warning"}
    return _while_so(kind, job, f"silent.{int(now // 3600)}", now) | told


def kept(
    kind: JobKind, job: Mapping[str, Any], sight: Sight, dispatch: Dispatch, why: str, *, now: float
) -> dict[str, Any]:
    """Return the event that a gang which is to leave its member is kept there by something; one an hour.

    Where its copy is gone by that ``sight`` its pods are left, or its reservation.
    """
    metadata = job["metadata"]
    what = f"describe {kind.singular} {metadata['name']}" if sight.copy else "get pod"
    ask = f"kubectl amc {what} -n {metadata['namespace']} -m {dispatch.member}"
    message = (
        f"{dispatch.member} {why}. Once nothing of it is left there, the job goes away or runs elsewhere. Fix that in "
        f"{dispatch.member}; this shows it: {ask}"
    )
    told = {"reason": KEPT, "message": message, "type": "Warning"}
    return _of_job(kind, job, f"kept.{int(now // 3600)}", now) | told


def halted(
    kind: JobKind, job: Mapping[str, Any], dispatch: Dispatch, which: str, *, failed: bool, now: float
) -> dict[str, Any]:
    """Return the event that a gang which a member has does not run there: it has failed, or was stopped.

    Why, its record says. ``which`` is different for each stop.
    """
    said = dispatch.waits
    message = shortened(f"{dispatch.member} {said}", EVENT_CHARACTERS)
    told = {"reason": FAILED if failed else STOPPED, "message": message, "type": "Warning" if failed else "Normal"}
    return _of_job(kind, job, f"halted.{dispatch.offer}.{crc32(f'{which} {said}'.encode()):08x}", now) | told


def ended(kind: JobKind, job: Mapping[str, Any], dispatch: Dispatch, said: str, now: float) -> dict[str, Any]:
    """Return the event that a gang has failed for good, as its member says."""
    where = f"kubectl amc get events -n {job['metadata']['namespace']} -m {dispatch.member}"
    message = f"{dispatch.member} {said}; it is tried nowhere else. Its pods go; what was told of them: {where}"
    told = {"reason": FAILED, "message": shortened(message, EVENT_CHARACTERS), "type": "Warning"}
    return _of_job(kind, job, f"ended.{dispatch.offer}", now) | told


def leaves(kind: JobKind, job: Mapping[str, Any], recalled: Dispatch, now: float) -> dict[str, Any]:
    """Return the event that a gang which is to run leaves its member, or was given up there, and why."""
    then = " once nothing of it is left there" if recalled.holds else ""
    message = shortened(f"{recalled.why}. It is offered to members again{then}", EVENT_CHARACTERS)
    told = {"reason": LEAVES, "message": message, "type": "Normal"}
    return _of_job(kind, job, f"leaves.{recalled.offer}", now) | told


def lacking(
    kind: JobKind, job: Mapping[str, Any], dispatch: Dispatch, lacks: Sequence[str], now: float
) -> dict[str, Any]:
    """Return the event that a gang's member does not have what the gang refers to as the hub has it; one an offer."""
    message = shortened(f"In {dispatch.member}: {'; '.join(lacks)}", EVENT_CHARACTERS)
    told = {"reason": LACKING, "message": message, "type": "Warning"}
    return _of_job(kind, job, f"lacking.{dispatch.offer}", now) | told


def unplaced(kind: JobKind, job: Mapping[str, Any], dispatch: Dispatch, now: float) -> dict[str, Any]:
    """Return the event that a job which is to run waits for a member, and what each has said; one an hour."""
    asked = f"{dispatch.member} {dispatch.waits or 'is asked for room'}" if dispatch.member else ""
    said = "; ".join(filter(None, (asked, dispatch.why, *dispatch.elsewhere))) or "the log of tutti hub says more"
    begins = STARTS_NOWHERE.capitalize() if dispatch.never else "No member of the fleet has taken it yet"
    message = shortened(f"{begins}: {said}", EVENT_CHARACTERS)
    told = {"reason": UNPLACED, "message": message, "type": "Warning" if dispatch.never else "Normal"}
    return _of_job(kind, job, f"{'never' if dispatch.never else 'unplaced'}.{int(now // 3600)}", now) | told


def queue_missing(kind: JobKind, job: Mapping[str, Any], now: float) -> dict[str, Any]:
    """Return the event that a job which names no queue is placed in no member, for the hub has queues; one an hour."""
    message = (
        "The hub has queues for this namespace, and the job names none, so it is offered to no member. Suspend it, "
        f"then label it {names.QUEUE_LABELS[0]}, or create it again"
    )
    told = {"reason": QUEUE_MISSING, "message": message, "type": "Warning"}
    return _of_job(kind, job, f"queue.{int(now // 3600)}", now) | told


def status_refused(kind: JobKind, job: Mapping[str, Any], member: str, why: str, now: float) -> dict[str, Any]:
    """Return the event that the hub's job cannot show what its copy says of itself; one an hour.

    ``member`` is empty where no copy is left, and the job is only to show that.
    """
    message = (_NOT_SHOWN if member else _NOT_CLEARED).format(member=member, why=shortened(why, REASON_CHARACTERS))
    told = {"reason": STATUS_REFUSED, "message": message, "type": "Warning"}
    return _while_so(kind, job, f"refused.{int(now // 3600)}", now) | told


def strange_end(kind: JobKind, job: Mapping[str, Any], now: float) -> dict[str, Any]:
    """Return the event that something in the hub says a job has ended, which no member has said; one an hour."""
    message = (
        "A status says that this job has ended, and no member has said that, so the job goes on. Something writes "
        f"statuses of {kind.kind}s in the hub's own cluster, most likely their operator. Remove it from the hub"
    )
    told = {"reason": STRANGE_END, "message": message, "type": "Warning"}
    return _while_so(kind, job, f"strange.{int(now // 3600)}", now) | told


def expiring(namespace: str, secret: str, member: str, until: float, now: float) -> dict[str, Any]:
    """Return the event that a member's credentials end soon; one an hour, for events are not kept much longer."""
    about = {"apiVersion": "v1", "kind": "Secret", "namespace": namespace, "name": secret}
    message = f"credentials of member {member} are valid until {time_text(int(until))}: tutti fleet account"
    told = {"reason": "CredentialsExpire", "message": message, "type": "Warning"}
    return _event(f"{secret[:100]}.{member[:100]}.{int(now // 3600)}", about, now) | told


def _while_so(kind: JobKind, job: Mapping[str, Any], last: str, now: float) -> dict[str, Any]:
    """Return the same with the record of the job, which is another one once the job goes on."""
    event = _of_job(kind, job, last, now)
    record = (job["metadata"].get("annotations") or {}).get(names.DISPATCH)
    noted = {} if record is None else {"annotations": {names.DISPATCH: record}}
    return event | {"metadata": event["metadata"] | noted}


def _of_job(kind: JobKind, job: Mapping[str, Any], last: str, now: float) -> dict[str, Any]:
    """Return what events of a hub's job have in common; of the same last part of its name each job has one."""
    metadata = job["metadata"]
    involved = {key: metadata[key] for key in ("namespace", "name", "uid")}
    about = {"apiVersion": job["apiVersion"], "kind": kind.kind, **involved}
    # Another kind has a job of this name, or it is made again by it.
    return _event(f"{metadata['name'][:180].rstrip('-.')}.{metadata['uid'][:UID_CHARACTERS]}.{last}", about, now)


def _event(name: str, about: Mapping[str, Any], now: float) -> dict[str, Any]:
    seen = time_text(int(now))
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": about["namespace"]},
        "firstTimestamp": seen,
        "lastTimestamp": seen,
        "count": 1,
        "source": {"component": _COMPONENT},
        "involvedObject": dict(about),
    }
