"""/validate/policy: a policy object that does not compile is refused with path, value and fix for each mistake.

What dangles (a flavor that does not exist yet, a cohort cycle) only deactivates what depends on it and is warned about,
because the other object may be on its way. The ConfigMap that holds policy is judged as a whole. What goes while it
holds gangs is refused too (``policy_in_use``).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from webhook.cluster.view import View
from webhook.core.notation.problem import Problem
from webhook.dialects import compiler as policy_compiler
from webhook.dialects import config_map, elastic_quota_tree
from webhook.dialects.compiler import PolicyCompiler
from webhook.dialects.fragment import Source, source_of
from webhook.server.policy_in_use import NAMESPACE_CONTROLLER, why_kept, why_leaf_kept
from webhook.server.review.answer import ALLOW, Answer, Refusal, allow, deny
from webhook.wire.admission_review import ReviewRequest
from webhook.wire.nesting import LEVELS_MAX

PolicyObject = Mapping[str, object]
PolicyObjects = Callable[[str], Iterable[PolicyObject]]
"""The policy objects that a change of this resource may concern, as they are stored now or in the ConfigMap."""

_SHOWN_MAX: Final = 8


def judge_removal(request: ReviewRequest, view: View) -> Answer:
    """Return whether what the request takes away may go: a policy object, or some of those in the ConfigMap."""
    old = request.old_object
    if request.subresource or old is None or request.username == NAMESPACE_CONTROLLER:
        return ALLOW
    reasons = [why_kept(source, view) for source in _removed(request, old)]
    reasons += [why_leaf_kept(before, after, view) for before, after in _changed_trees(request, old)]
    why = next((why for why in reasons if why is not None), None)
    return ALLOW if why is None else deny(Refusal.IN_USE, why)


def _removed(request: ReviewRequest, old: Mapping[str, object]) -> list[Source]:
    if request.resource != "configmaps":
        return [source_of(old)] if request.operation == "DELETE" else []
    if request.name != config_map.NAME:
        return []
    before, _ = config_map.objects_of(old)
    after, _ = config_map.objects_of(request.object) if request.object is not None else ((), ())
    kept = {source_of(known) for known in after}
    return [source for known in before if (source := source_of(known)) not in kept]


def _changed_trees(
    request: ReviewRequest, old: Mapping[str, object]
) -> Iterator[tuple[Mapping[str, object], Mapping[str, object]]]:
    """Yield each ElasticQuotaTree that stays, as it was and as it would be."""
    if request.object is None or (request.resource == "configmaps" and request.name != config_map.NAME):
        return
    in_map = request.resource == "configmaps"
    before, after = ((config_map.objects_of(each)[0] if in_map else [each]) for each in (old, request.object))
    now = {source_of(each): each for each in after}
    for each in before:
        if source_of(each).kind == elastic_quota_tree.KIND and source_of(each) in now:
            yield each, now[source_of(each)]


def judge(
    request: ReviewRequest, view: View, stored: Iterable[Mapping[str, object]], compiler: PolicyCompiler
) -> Answer:
    """Return the answer about one policy object or about the policy ConfigMap.

    It may run outside the event loop: what it reads of the view is replaced as a whole when it changes.
    """
    kept = judge_removal(request, view)
    return validate(request, stored, compiler) if kept.allowed else kept


def validate(request: ReviewRequest, stored: Iterable[Mapping[str, object]], compiler: PolicyCompiler) -> Answer:
    """Return the answer about an object as it would be stored with those that are ``stored``."""
    obj = request.object
    if request.operation == "DELETE" or request.subresource:
        return ALLOW
    if request.operation not in ("CREATE", "UPDATE"):
        return deny(Refusal.UNCLASSIFIED, f"operation {request.operation!r} is not one Tutti registered", 400)
    if obj is None:
        return deny(Refusal.MALFORMED, "request.object is missing", 422)
    metadata = obj.get("metadata")
    if not isinstance(metadata, dict):
        return deny(Refusal.MALFORMED, "metadata must be an object", 422)
    if metadata.get("deletionTimestamp") is not None or _unchanged(request, obj):
        return ALLOW
    if request.resource == "configmaps" and metadata.get("name") != config_map.NAME:
        return ALLOW
    if request.too_deep:
        return deny(
            Refusal.POLICY, f"/: is nested more than {LEVELS_MAX} levels deep; no field that Tutti reads is", 422
        )
    if request.resource == "configmaps":
        return _answer(_config_map(obj, request.old_object, list(stored)))
    return _answer(policy_compiler.validate(obj, stored, compiler, request.old_object))


def _unchanged(request: ReviewRequest, obj: Mapping[str, object]) -> bool:
    """A finalizer or a label of an object that was broken before must stay editable."""
    old = request.old_object if request.operation == "UPDATE" else None
    return old is not None and all(old.get(key) == obj.get(key) for key in ("spec", "data", "value"))


def _config_map(
    obj: Mapping[str, object], old: Mapping[str, object] | None, stored: list[Mapping[str, object]]
) -> tuple[Problem, ...]:
    objects, problems = config_map.objects_of(obj)
    before, unread = config_map.objects_of(old) if old is not None else ((), ())
    replaced = {source_of(known) for known in before}
    rest = [known for known in stored if source_of(known) not in replaced]
    known_problems = set(policy_compiler.compile_policy(rest).problems)
    added = [d for d in policy_compiler.compile_policy([*rest, *objects]).problems if d not in known_problems]
    return (*(problem for problem in problems if problem not in unread), *added)


def _answer(problems: tuple[Problem, ...]) -> Answer:
    errors = [str(problem) for problem in problems if not problem.warning]
    warnings = tuple(str(problem) for problem in problems if problem.warning)
    if not errors:
        return allow(warnings)
    more = f" (and {len(errors) - _SHOWN_MAX} more)" if len(errors) > _SHOWN_MAX else ""
    return deny(Refusal.POLICY, "; ".join(errors[:_SHOWN_MAX]) + more, 422, warnings)
