"""/validate/jobs: what may be stored of a job, at its creation and at every change.

Pure: request and rules in, answer out. Our own account may change everything: ``handler`` does not ask about it;
everybody else may create suspended and marked, change what waits, hold and shrink what runs (``changes``), and delete
anything, but not without its pods what would be made again (``children``).
"""

from collections.abc import Mapping
from typing import Any, Final

from webhook.core.notation import names
from webhook.jobs.kinds.kind import JobKind
from webhook.jobs.reading.gang import GangReading
from webhook.jobs.reading.gating import for_a_member, gang_owner, managed_by_other, pending
from webhook.server.jobs.changes import Change, judge_change
from webhook.server.jobs.children import claims_an_owner, judge_child, judge_deletion, judge_scale
from webhook.server.jobs.gang_checks import (
    gang_problem,
    gang_warnings,
    lingering,
    reading,
    unfit_template,
    unfollowed,
    unplaced,
)
from webhook.server.jobs.spare_room import crowded_out
from webhook.server.jobs.ungated import judge_ungated, meaningless, mislabelled, newly_marked
from webhook.server.review.answer import ALLOW, Answer, Refusal, allow, deny
from webhook.server.review.class_checks import check_job
from webhook.server.review.job_facts import (
    JobRules,
    malformed,
    malformed_suspend,
    not_ours,
    own_annotations,
    reservation_of,
    ruling_alone,
)
from webhook.server.review.resources_table import Handling, ResourcesTable
from webhook.untyped import paths
from webhook.wire.admission_review import ReviewRequest

_OPERATIONS: Final = ("CREATE", "UPDATE", "DELETE")


def validate(request: ReviewRequest, rules: JobRules, table: ResourcesTable) -> Answer:
    """Return the answer of the validating phase for a job, its scale subresource, or what cannot be gated."""
    if request.operation not in _OPERATIONS:
        return deny(Refusal.UNCLASSIFIED, f"operation {request.operation!r} is not one Tutti registered", 400)
    handling = table.handling(request.group, request.resource, request.subresource)
    if request.operation == "DELETE" and handling is not None:
        kind = rules.by_resource.get((request.group, request.resource))
        return judge_deletion(request, rules, kind) if kind is not None and handling is Handling.JOB else ALLOW
    if handling is Handling.NONE:
        return ALLOW
    if handling is Handling.WARN:
        return judge_ungated(request, rules)
    kind = rules.by_resource.get((request.group, request.resource))
    if kind is None or handling not in (Handling.JOB, Handling.SCALE):
        served = f"{request.resource}/{request.subresource}" if request.subresource else request.resource
        message = (
            f"{served!r} of group {request.group!r} is not a resource Tutti decides about; correct the registration"
        )
        return deny(Refusal.UNCLASSIFIED, message, 400)
    if handling is Handling.SCALE:
        return judge_scale(request, rules, kind)
    obj = request.object
    if obj is None:
        return deny(Refusal.MALFORMED, "request.object is missing", 422)
    wrong = malformed(request, kind, obj)
    if wrong is not None:
        return wrong
    if request.operation == "CREATE":
        return _create(request, rules, kind, obj)
    old = request.old_object
    if old is None:
        return deny(Refusal.MALFORMED, "request.oldObject is missing", 422)
    return judge_change(Change(request, rules, kind, obj, old, reservation_of(rules, old)))


def _create(request: ReviewRequest, rules: JobRules, kind: JobKind, obj: Mapping[str, Any]) -> Answer:
    owner = gang_owner(kind, obj, rules.kinds)
    if owner is not None and request.username in rules.kinds[owner.kind].controller_users:
        return judge_child(request, rules, kind, None)
    rule = ruling_alone(rules, kind, obj)
    given = {names.MANAGED_BY} if rule is not None and kind.managed_by is None and for_a_member(kind, obj) else set()
    written = sorted(own_annotations(obj).keys() - given)
    if written and request.username != rules.settings.account:
        return deny(Refusal.OWN_FIELDS, f"annotation {written[0]} is written only by Tutti; leave it out")
    if rule is None:
        refusal = newly_marked(request, rules.settings.account)
        warnings = () if managed_by_other(kind, obj) else (*mislabelled(request), *meaningless(obj))
        return refusal or (allow(warnings) if warnings else not_ours(rules, obj))
    asking = reading(rules, kind, obj)
    problem = (
        (None if owner is None else claims_an_owner(request, owner))
        or crowded_out(request, obj)
        or (None if kind.suspend is None else _held_at_birth(kind, obj, asking, pending(rule)))
        or gang_problem(asking)
        or unfit_template(asking)
    )
    if problem is not None:
        return problem
    denial, warnings = check_job(rules, asking)
    lasting = (*lingering(kind, obj, asking), *unfollowed(rules, kind, obj, asking), *unplaced(rules, kind))
    return denial or allow((*warnings, *meaningless(obj), *gang_warnings(rules, kind, obj, asking), *lasting))


def _held_at_birth(kind: JobKind, obj: Mapping[str, Any], asking: GangReading, gang: str) -> Answer | None:
    suspend = paths.find(obj, kind.suspend or ())
    if suspend is not True:
        wrong = malformed_suspend(kind, obj)
        if wrong is not None:
            return wrong
        where = paths.render(kind.suspend or ())
        dropped = "" if suspend is not None else _dropped(kind, where, "upgrade its operator, or correct the entry")
        message = (
            f"a job that waits is stored with {where}: true; Tutti's mutating webhook sets it and did "
            f"not act. Set it yourself, or ask the administrators to look at the registration{dropped}"
        )
        return deny(Refusal.UNSUSPENDED, message)
    for site in asking.sites:
        labels = site.labels
        if site.metadata_path is None:
            continue
        if labels.get(names.POD_SET_LABEL, site.name) != site.name:
            message = f"label {names.POD_SET_LABEL} of pod set {site.name} is written only by Tutti; leave it out"
            return deny(Refusal.OWN_FIELDS, message)
        if labels.get(names.GANG_LABEL) != gang:
            message = (
                f"pod template {site.name} lacks label {names.GANG_LABEL}: {gang}; Tutti's mutating "
                "webhook sets it and did not act. Ask the administrators to look at the registration"
            )
            return deny(Refusal.UNSUSPENDED, message + _cannot_carry(kind, obj))
    return None


def _dropped(kind: JobKind, field: str, remedy: str) -> str:
    """Return the other explanation for a field that the mutating webhook wrote and that is not there."""
    served = f"the definition of {kind.kind} {kind.group}/{kind.version} that this cluster serves"
    return f"; or {served} has no field {field}, and the API server dropped it: {remedy}"


def _cannot_carry(kind: JobKind, obj: Mapping[str, Any]) -> str:
    needed = kind.labels_need
    if needed is None or paths.find(obj, needed.field) is not None:
        return ""
    return _dropped(kind, paths.render(needed.field), needed.remedy)
