"""Which flavor each resource of a gang is taken from.

Follows Kueue's flavor assigner. Pod sets are decided in order; all resources of one resource group get the same flavor;
flavors are tried in the queue's order. A flavor is out of the question when its taints are not tolerated or the pod
set's node selector or required affinity contradicts its labels (only keys that the flavor itself has are looked at).
Otherwise it is as good as its worst resource (``Mode``), and the queue's fungibility says whether to stop or look on.

``compile_request`` does once what does not depend on usage; ``assign`` does the rest and is called for each decision.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from webhook.core import amounts
from webhook.core.gang import Gang, PodSet, Requirement, Toleration
from webhook.core.ledger import MAX_JOBS_REQUEST
from webhook.core.names import MAX_JOBS
from webhook.core.policy import (
    Flavor,
    FlavorResource,
    Fungibility,
    Preference,
    Queue,
    ResourceGroup,
    SearchPolicy,
    Taint,
    requirement_holds,
)
from webhook.core.quantity import MILLI
from webhook.core.reasons import Code, Reason
from webhook.core.settings import EngineSettings


class Mode(IntEnum):
    """How a gang could get a flavor, worst first."""

    NO_FIT = 0
    NO_CANDIDATES = 1
    """Preemption is allowed and finds nobody to stop."""
    PREEMPT = 2
    """By stopping gangs of its own queue."""
    RECLAIM = 3
    """By stopping gangs of other queues only."""
    FIT = 4


@dataclass(frozen=True, slots=True)
class Want:
    """One resource of one pod set."""

    resource: str
    each: int
    """Per pod, or per gang when ``once``."""
    once: bool = False

    def amount(self, pods: int) -> int:
        """Return what ``pods`` pods ask."""
        return self.each if self.once else self.each * pods


@dataclass(frozen=True, slots=True)
class Option:
    """One flavor a group of resources could be taken from."""

    flavor: str
    keys: tuple[FlavorResource, ...]
    """One for each want of the choice."""
    misfit: str | None = None
    """Why the pod set cannot run on this flavor at all."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One decision: the resources of one pod set that one resource group covers."""

    pod_set: str
    wants: tuple[Want, ...]
    options: tuple[Option, ...]


@dataclass(frozen=True, slots=True)
class Request:
    """What a gang asks of its queue, independent of usage."""

    choices: tuple[Choice, ...] = ()
    charges: Mapping[str, Mapping[str, int]] | None = None
    """Pod set to per-pod charge, where it differs from the pods' requests."""
    refusal: Reason | None = None
    """Why no flavor can ever be assigned (a resource that no group covers)."""

    @property
    def keys(self) -> frozenset[FlavorResource]:
        """Every key it might be charged to."""
        return frozenset(key for choice in self.choices for option in choice.options for key in option.keys)

    def amounts(self, counts: Mapping[str, int]) -> dict[FlavorResource, int]:
        """Return what ``counts`` pods are charged where no choice has alternatives."""
        total: dict[FlavorResource, int] = {}
        for choice in self.choices:
            for key, want in zip(choice.options[0].keys, choice.wants, strict=True):
                total[key] = total.get(key, 0) + want.amount(counts.get(choice.pod_set, 0))
        return total

    @property
    def has_alternatives(self) -> bool:
        """Some resource could come from more than one flavor."""
        return any(len(choice.options) > 1 for choice in self.choices)


@dataclass(frozen=True, slots=True)
class Block:
    """One thing in the way: this much of this key does not fit, or no flavor matches."""

    code: Code
    key: FlavorResource
    asked: int
    message: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """How one amount of one key could be had."""

    mode: Mode
    level: int
    code: Code | None = None


@dataclass(frozen=True, slots=True)
class Assignment:
    """The flavors chosen for a gang at given counts."""

    mode: Mode
    level: int
    """Borrow level, the highest over all resources."""
    flavors: Mapping[str, Mapping[str, str]]
    """Pod set to resource to flavor."""
    usage: Mapping[FlavorResource, int]
    needs_room: frozenset[FlavorResource] = frozenset()
    """Keys that do not fit without preemption."""
    blocks: tuple[Block, ...] = ()
    """Everything that stood in the way of something better: what a change could help."""
    decisive: tuple[Block, ...] = ()
    """What stood in the way of the choice that failed; all blocks when none did outright."""
    resume: Mapping[int, int] = field(default_factory=dict)
    """Choice to the flavor where its scan would go on; only choices whose scan stopped early."""


Judge = Callable[[FlavorResource, int], Verdict]


def compile_request(gang: Gang, queue: Queue, flavors: Mapping[str, Flavor], settings: EngineSettings) -> Request:
    """Return what ``gang`` asks of ``queue``, with the flavors each resource group offers to each pod set."""
    choices: list[Choice] = []
    charges: dict[str, Mapping[str, int]] = {}
    ignores_undeclared = queue.ignores_undeclared or settings.ignore_undeclared
    for position, pod_set in enumerate(gang.pod_sets):
        charge = charge_of(pod_set.price.requests, settings)
        if charge != pod_set.price.requests:
            charges[pod_set.name] = charge
        wants = {name: Want(name, amount) for name, amount in charge.items()}
        wants["pods"] = Want("pods", MILLI)
        if position == 0:
            wants[MAX_JOBS] = Want(MAX_JOBS, MAX_JOBS_REQUEST, once=True)
        for group in queue.resource_groups:
            covered = tuple(wants.pop(name) for name in group.resources if name in wants)
            if covered:
                choices.append(Choice(pod_set.name, covered, _options(group, covered, pod_set, flavors)))
        undeclared = sorted(name for name in charge if name in wants and charge[name] and pod_set.count)
        if undeclared and not ignores_undeclared:
            return Request(charges=charges or None, refusal=_undeclared(queue, pod_set, wants[undeclared[0]]))
    return Request(tuple(choices), charges or None)


def charge_of(requests: amounts.Amounts, settings: EngineSettings) -> amounts.Amounts:
    """Return what one pod is charged: its requests without excluded prefixes, transformed."""
    if not settings.excluded_prefixes and not settings.transformations:
        return requests
    kept = {n: a for n, a in requests.items() if not n.startswith(settings.excluded_prefixes or ("\0",))}
    charge = dict(kept)
    for rule in settings.transformations:
        if rule.resource not in kept:
            continue
        if rule.replace:
            charge[rule.resource] = charge.get(rule.resource, 0) - kept[rule.resource]
        for output, factor in rule.outputs.items():
            product, scale = kept[rule.resource] * factor, MILLI
            if rule.multiply_by:
                product, scale = product * kept.get(rule.multiply_by, 0), scale * MILLI
            charge[output] = charge.get(output, 0) - (-product // scale)
    replaced = {rule.resource for rule in settings.transformations if rule.replace}
    return {n: max(0, amount) for n, amount in charge.items() if amount > 0 or n not in replaced}


def _undeclared(queue: Queue, pod_set: PodSet, want: Want) -> Reason:
    return Reason(
        Code.NO_MATCHING_FLAVOR,
        message=f"pod set {pod_set.name}: no resource group of queue {queue.name} covers {want.resource}",
        node=f"queue {queue.name}",
        resource=want.resource,
        asked=want.amount(pod_set.count),
        help=f"add {want.resource} to a resource group of the queue, or ask for none of it",
    )


def _options(
    group: ResourceGroup, wants: tuple[Want, ...], pod_set: PodSet, flavors: Mapping[str, Flavor]
) -> tuple[Option, ...]:
    return tuple(
        Option(
            quotas.flavor,
            tuple(FlavorResource(quotas.flavor, want.resource) for want in wants),
            misfit(flavors.get(quotas.flavor), quotas.flavor, pod_set),
        )
        for quotas in group.flavors
    )


def misfit(flavor: Flavor | None, name: str, pod_set: PodSet) -> str | None:
    """Return why pods of ``pod_set`` cannot run on ``flavor``, or None when they can."""
    if flavor is None:
        return f"flavor {name} does not exist"
    for taint in flavor.node_taints:
        if taint.effect in ("NoSchedule", "NoExecute") and not any(
            _tolerates(toleration, taint) for toleration in (*pod_set.tolerations, *flavor.tolerations)
        ):
            return f"untolerated taint {taint.key}={taint.value}:{taint.effect} of flavor {name}"
    for key, value in pod_set.node_selector.items():
        if key in flavor.node_labels and flavor.node_labels[key] != value:
            return f"node selector {key}={value} does not match flavor {name}"
    if pod_set.node_affinity and not any(_term_matches(term, flavor) for term in pod_set.node_affinity):
        return f"node affinity does not match flavor {name}"
    return None


def _term_matches(term: tuple[Requirement, ...], flavor: Flavor) -> bool:
    return all(requirement_holds(r, flavor.node_labels) for r in term if r.key in flavor.node_labels)


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if not toleration.key:
        return toleration.operator == "Exists"
    if toleration.key != taint.key:
        return False
    return toleration.operator == "Exists" or toleration.value == taint.value


def assign(
    request: Request,
    counts: Mapping[str, int],
    fungibility: Fungibility,
    judge: Judge,
    resume: Mapping[int, int] | None = None,
) -> Assignment:
    """Return the best flavors for ``counts`` pods of each set; its mode is NO_FIT when a group finds none.

    ``judge`` says how an amount of one key could be had. ``resume`` is that of an earlier assignment that came to
    nothing: the flavors it tried are passed over.
    """
    mode, level = Mode.FIT, 0
    chosen: dict[str, dict[str, str]] = {}
    usage: dict[FlavorResource, int] = {}
    needs: set[FlavorResource] = set()
    blocks: list[Block] = []
    decisive: tuple[Block, ...] = ()
    unfinished: dict[int, int] = {}
    for index, choice in enumerate(request.choices):
        start = 0 if resume is None else resume.get(index, 0)
        best = _scan(choice, counts.get(choice.pod_set, 0), usage, fungibility, judge, start=start)
        blocks += best.blocks
        if 0 < best.next < len(choice.options):
            unfinished[index] = best.next
        if best.option is None:
            return Assignment(
                Mode.NO_FIT, max(level, best.top_level), {}, {}, frozenset(), tuple(blocks), best.blocks, unfinished
            )
        mode, level = min(mode, best.mode), max(level, best.top_level)
        flavors = chosen.setdefault(choice.pod_set, {})
        for key, want in zip(best.option.keys, choice.wants, strict=True):
            flavors[want.resource] = key.flavor
            usage[key] = usage.get(key, 0) + want.amount(counts.get(choice.pod_set, 0))
        needs.update(best.needs)
        if best.mode is not Mode.FIT:
            decisive += best.blocks
    return Assignment(mode, level, chosen, usage, frozenset(needs), tuple(blocks), decisive, unfinished)


@dataclass(slots=True)
class _Scanned:
    """What the scan of one choice came to."""

    option: Option | None = None
    mode: Mode = Mode.NO_FIT
    level: int = 0
    """Of the worst resource: what fungibility compares."""
    top_level: int = 0
    """The highest of all resources."""
    needs: tuple[FlavorResource, ...] = ()
    blocks: tuple[Block, ...] = ()
    next: int = 0
    """Where the scan would go on; 0 when it reached the end."""


def _scan(
    choice: Choice,
    pods: int,
    assumed: Mapping[FlavorResource, int],
    fungibility: Fungibility,
    judge: Judge,
    *,
    start: int,
) -> _Scanned:
    best = _Scanned()
    blocks: list[Block] = []
    for index in range(start, len(choice.options)):
        option = choice.options[index]
        if option.misfit is not None:
            blocks.append(Block(Code.NO_MATCHING_FLAVOR, option.keys[0], 0, option.misfit))
            continue
        found = _try_option(option, choice, pods, assumed, judge)
        blocks += found.blocks
        if found.option is None:
            continue
        if _stops(found, fungibility):
            best = found
            best.next = index + 1
            break
        if best.option is None or _preferred(found, best, fungibility):
            best = found
    best.blocks = tuple(blocks)
    return best


def _try_option(
    option: Option, choice: Choice, pods: int, assumed: Mapping[FlavorResource, int], judge: Judge
) -> _Scanned:
    mode, level, top = Mode.FIT, 0, 0
    needs: list[FlavorResource] = []
    blocks: list[Block] = []
    for key, want in zip(option.keys, choice.wants, strict=True):
        amount = assumed.get(key, 0) + want.amount(pods)
        verdict = judge(key, amount)
        if verdict.mode is not Mode.FIT:
            needs.append(key)
            blocks.append(Block(verdict.code or Code.WAITING_FOR_QUOTA, key, amount))
        if verdict.mode is Mode.NO_FIT:
            return _Scanned(blocks=tuple(blocks))
        top = max(top, verdict.level)
        if verdict.mode < mode or (verdict.mode is mode and verdict.level > level):
            mode, level = verdict.mode, verdict.level
    return _Scanned(option, mode, level, top, tuple(needs), tuple(blocks))


def _stops(found: _Scanned, fungibility: Fungibility) -> bool:
    """Return whether the scan ends here."""
    if found.mode <= Mode.NO_CANDIDATES:
        return False
    if found.mode < Mode.FIT and fungibility.when_can_preempt is SearchPolicy.TRY_NEXT_FLAVOR:
        return False
    return not (found.level > 0 and fungibility.when_can_borrow is SearchPolicy.TRY_NEXT_FLAVOR)


def _preferred(found: _Scanned, best: _Scanned, fungibility: Fungibility) -> bool:
    """Return whether ``found`` beats what was found earlier; ties keep the earlier."""
    if Mode.NO_CANDIDATES in (found.mode, best.mode) and found.mode is not best.mode:
        return best.mode is Mode.NO_CANDIDATES
    if fungibility.preference is Preference.PREEMPTION_OVER_BORROWING:
        return (-found.level, found.mode) > (-best.level, best.mode)
    return (found.mode, -found.level) > (best.mode, -best.level)
