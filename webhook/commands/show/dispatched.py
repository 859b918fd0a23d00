"""Where a hub has a job: in which member it is, and what the other members say of it."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from webhook.commands.show.reading import kind_and_name, stored
from webhook.commands.show.warned import warned
from webhook.core.fleet.dispatch import Dispatch, DispatchPhase
from webhook.core.fleet.text import UnreadableRecord
from webhook.core.notation import names
from webhook.errors import ApiError
from webhook.fleet.jobs.events import STARTS_NOWHERE
from webhook.fleet.members.copies import dispatch_of, placed_by_hub, why_unwanted
from webhook.jobs.kinds.kind import JobKind
from webhook.jobs.kinds.registry import by_name
from webhook.jobs.reading import status
from webhook.kube.api import Api
from webhook.untyped import paths

Lines = list[tuple[str, str]]
"""What each is about, and its text."""
_WORDS: Final = {
    DispatchPhase.OFFERED: "{} is asked for room",
    DispatchPhase.GRANTED: "{} has it",
    DispatchPhase.RECALLED: "it leaves {}: {}",
}


async def dispatched(api: Api, job: str, namespace: str, now: float) -> Lines | None:
    """Return where ``job`` (KIND/NAME) is among the members; None where no hub places it, or it cannot be read.

    ``now`` is Unix time.
    """
    kind, name = kind_and_name(job)
    known = by_name(kind)
    if known is None or not known.dispatchable:
        return None
    try:
        found = await stored(api, known, namespace, name)
    except ApiError:
        # Who may read workloads need not be allowed to read jobs.
        return None
    if found is None or not placed_by_hub(*found):
        return None
    return lines(*found) + await warned(api, found[1], now)


def lines(kind: JobKind, job: Mapping[str, Any]) -> Lines:
    """Return where a job of a hub is."""
    try:
        dispatch = dispatch_of(job)
    except UnreadableRecord as error:
        return [("member", f"not known: {names.DISPATCH}: {error}; an event DispatchUnreadable says what to do")]
    if dispatch.phase is DispatchPhase.NOWHERE:
        found = _under("member", _nowhere(kind, job, dispatch))
    else:
        found = [("member", _member(kind, job, dispatch)), *_elsewhere(job, dispatch)]
    if dispatch.never and not dispatch.holds:
        found.append(("in all", STARTS_NOWHERE))
    if dispatch.failed:
        found.append(("failed in", ", ".join(dict.fromkeys(each.member for each in dispatch.failed))))
    return found


def _elsewhere(job: Mapping[str, Any], dispatch: Dispatch) -> Lines:
    """Return why it is not in this member or that. Of one that a member has, it was found when that was asked."""
    if dispatch.phase is not DispatchPhase.GRANTED:
        return _under("elsewhere", dispatch.elsewhere)
    halted = dispatch.waits or status.has_condition(job, "Suspended")
    return [] if halted else _under("passed over", dispatch.elsewhere)


def _under(name: str, texts: Sequence[str]) -> Lines:
    return [("" if number else name, text) for number, text in enumerate(texts)]


def _member(kind: JobKind, job: Mapping[str, Any], dispatch: Dispatch) -> str:
    if dispatch.phase is DispatchPhase.OFFERED and dispatch.waits:
        return f"{dispatch.member} is asked for room, and {dispatch.waits}"
    if dispatch.phase is DispatchPhase.GRANTED and status.finished(kind, job) is None and why_unwanted(kind, job):
        return f"{dispatch.member} has it, and stops it as soon as it hears of this: {why_unwanted(kind, job)}"
    if dispatch.phase is DispatchPhase.GRANTED and dispatch.waits:
        return f"it is granted to {dispatch.member}, which {dispatch.waits}"
    if dispatch.phase is DispatchPhase.RECALLED and dispatch.waits:
        return f"it leaves {dispatch.member}: {dispatch.why}; {dispatch.member} {dispatch.waits}"
    if dispatch.phase is DispatchPhase.GRANTED and status.has_condition(job, "Suspended"):
        namespace, name = (paths.find(job, ("metadata", key)) for key in ("namespace", "name"))
        ask = f"kubectl amc describe {kind.singular} {name} -n {namespace} -m {dispatch.member}"
        return f"{dispatch.member} has it, and has stopped it for now: {ask}"
    return _WORDS[dispatch.phase].format(dispatch.member, dispatch.why)


def _nowhere(kind: JobKind, job: Mapping[str, Any], dispatch: Dispatch) -> Sequence[str]:
    if status.finished(kind, job) is not None:
        return ["none any more: it has ended"]
    if dispatch.suspended_by:
        return [f"none: {dispatch.suspended_by} suspends dispatching"]
    if kind.suspend is not None and paths.find(job, kind.suspend) is True:
        if names.OFFER in paths.find_mapping(job, ("metadata", "annotations")):
            # Somebody has created it from the text of a copy: no hub has offered it here, so no permit will come.
            return [f"none: its annotation {names.OFFER} says that it is a copy, so it waits for a permit: remove that"]
        return ["none: it is suspended, and is offered to members once its queue admits it, or its owner resumes it"]
    told = dispatch.elsewhere or [dispatch.why or "the log of tutti hub says which member it waits for"]
    return [f"none yet: {told[0]}", *told[1:]]
