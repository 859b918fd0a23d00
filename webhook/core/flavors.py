"""Which flavor each resource of a gang is taken from.

Follows Kueue's flavor assigner. Pod sets are decided in order; all resources of one resource group get the same flavor;
flavors are tried in the queue's order. One that the pods cannot run on (``misfits``) or that can never hold them is out
of the question. Otherwise it is as good as its worst resource (``Mode``), and the queue's fungibility says whether to
stop or look on.

``compile_request`` does once what does not depend on usage; ``assign`` does the rest and is called for each decision.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum

from webhook.core import amounts
from webhook.core.gang import Gang, PodSet
from webhook.core.ledger import MAX_JOBS_REQUEST
from webhook.core.misfits import misfit
from webhook.core.names import GUARANTEED, MAX_JOBS, PREEMPTIBLE_JOBS
from webhook.core.policy import (
    Flavor,
    FlavorResource,
    Fungibility,
    Preference,
    Queue,
    ResourceGroup,
    SearchPolicy,
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
    """One resource of one pod set, and of those that take the same flavor."""

    resource: str
    each: int
    """Per pod, or per gang when ``once``."""
    pod_set: str
    once: bool = False
    more: tuple["Want", ...] = ()
    """What other pod sets ask of it that are to stand together with this one."""

    def amount(self, counts: Mapping[str, int]) -> int:
        """Return what ``counts`` pods of each set ask."""
        own = self.each if self.once else self.each * counts.get(self.pod_set, 0)
        return own + sum(want.amount(counts) for want in self.more) if self.more else own


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
    """One decision: the resources that one resource group covers, of one pod set or of several that stand together."""

    wants: tuple[Want, ...]
    options: tuple[Option, ...]
    seats: tuple[str, ...]
    """The pod set, or all those that stand together, whether or not they ask for any of these resources."""


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
                total[key] = total.get(key, 0) + want.amount(counts)
        return total

    def allows(self, flavors: Mapping[str, Mapping[str, str]]) -> bool:
        """Return whether each pod set may run on the flavors chosen for it (pod set → resource → flavor)."""
        return self.refusal is None and all(
            flavors.get(part.pod_set, {}).get(want.resource) in {o.flavor for o in choice.options if o.misfit is None}
            for choice in self.choices
            for want in choice.wants
            for part in (want, *want.more)
        )

    def first_flavors(self, pod_set: str) -> dict[str, str]:
        """Return the first flavor that each resource of a pod set could be taken from."""
        return {
            want.resource: choice.options[0].flavor
            for choice in self.choices
            for want in choice.wants
            if choice.options and any(part.pod_set == pod_set for part in (want, *want.more))
        }

    @property
    def has_alternatives(self) -> bool:
        """Some resource could come from more than one flavor."""
        return any(len(choice.options) > 1 for choice in self.choices)

    @property
    def has_one_way(self) -> bool:
        """Each resource can come from one flavor and no other."""
        return self.refusal is None and all(len(c.options) == 1 and c.options[0].misfit is None for c in self.choices)


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
    """Where the mode is NO_FIT: of the pod sets before the one that found no flavors."""
    needs_room: frozenset[FlavorResource] = frozenset()
    """Keys that do not fit without preemption."""
    blocks: tuple[Block, ...] = ()
    """Everything that stood in the way of something better: what a change could help."""
    decisive: tuple[Block, ...] = ()
    """What stood in the way of the choice that failed; all blocks when none did outright."""
    resume: Mapping[int, int] = field(default_factory=dict)
    """Choice to the flavor where its scan would go on; only choices whose scan stopped early."""


@dataclass(frozen=True, slots=True)
class Judge:
    """Says how an amount of one key could be had, and what is the most if everything else were idle."""

    verdict: Callable[[FlavorResource, int], Verdict]
    most: Callable[[FlavorResource], int] | None = None

    def exceeds(self, key: FlavorResource, amount: int) -> bool:
        """Return whether ``amount`` can never be had."""
        return self.most is not None and amount > self.most(key)


def compile_request(gang: Gang, queue: Queue, flavors: Mapping[str, Flavor], settings: EngineSettings) -> Request:
    """Return what ``gang`` asks of ``queue``, with the flavors each resource group offers to each pod set."""
    if gang.refusal is not None:
        return Request(refusal=gang.refusal)
    choices: list[tuple[object, Choice]] = []
    charges: dict[str, Mapping[str, int]] = {}
    ignores_undeclared = queue.ignores_undeclared or settings.ignore_undeclared
    jobs: set[str] = set()
    for position, pod_set in enumerate(gang.pod_sets):
        charge = charge_of(pod_set.price.requests, settings)
        if charge != pod_set.price.requests:
            charges[pod_set.name] = charge
        wants = {name: Want(name, amount, pod_set.name) for name, amount in charge.items()}
        wants["pods"] = Want("pods", MILLI, pod_set.name)
        first = pod_set.job not in jobs
        jobs.add(pod_set.job)
        if first:
            wants[MAX_JOBS] = Want(MAX_JOBS, MAX_JOBS_REQUEST, pod_set.name, once=True)
        if queue.spares_non_preemptible:
            wants |= _by_preemptibility(gang, wants, pod_set.name if first else None)
        for number, group in enumerate(queue.resource_groups):
            covered = tuple(wants.pop(name) for name in group.resources if name in wants)
            if covered:
                also = {want.resource: want.each for want in covered if want.resource.startswith(GUARANTEED)}
                if also:
                    charges[pod_set.name] = {**charges.get(pod_set.name, charge), **also}
                place = (pod_set.together or position, number)
                company = _company(gang, pod_set)
                options = _options(group, covered, company, flavors)
                choices.append((place, Choice(covered, options, tuple(each.name for each in company))))
        asked = (name for name in charge if charge[name] and pod_set.count and name not in pod_set.added)
        undeclared = sorted(name for name in asked if name in wants)
        if undeclared and not ignores_undeclared:
            return Request(charges=charges or None, refusal=_undeclared(queue, pod_set, wants[undeclared[0]]))
    order = {pod_set.name: position for position, pod_set in enumerate(gang.pod_sets)}
    choices.sort(key=lambda placed: order[placed[1].seats[0]])
    return Request(_joined(choices), charges or None)


def _company(gang: Gang, pod_set: PodSet) -> tuple[PodSet, ...]:
    """Return ``pod_set`` and those that stand together with it: one flavor has to suit them all, whoever asks of it."""
    if not pod_set.together:
        return (pod_set,)
    return tuple(each for each in gang.pod_sets if each.together == pod_set.together)


def _joined(choices: list[tuple[object, Choice]]) -> tuple[Choice, ...]:
    """Return the choices with those of one place made one."""
    found: dict[object, Choice] = {}
    for place, choice in choices:
        known = found.get(place)
        if known is None:
            found[place] = choice
            continue
        wants = {want.resource: want for want in known.wants}
        for want in choice.wants:
            first = wants.get(want.resource)
            wants[want.resource] = want if first is None else replace(first, more=(*first.more, want))
        options = tuple(
            replace(option, keys=tuple(FlavorResource(option.flavor, resource) for resource in wants))
            for option in known.options
        )
        found[place] = Choice(tuple(wants.values()), options, known.seats)
    return tuple(found.values())


def _by_preemptibility(gang: Gang, wants: Mapping[str, Want], first: str | None) -> dict[str, Want]:
    """Return what a pod set asks further where gangs that may be preempted are told from those that may not."""
    if not gang.preemptible:
        return {GUARANTEED + name: replace(want, resource=GUARANTEED + name) for name, want in wants.items()}
    return {PREEMPTIBLE_JOBS: Want(PREEMPTIBLE_JOBS, MAX_JOBS_REQUEST, first, once=True)} if first is not None else {}


def charge_of(requests: amounts.Amounts, settings: EngineSettings) -> amounts.Amounts:
    """Return what one pod is charged: its requests without excluded prefixes, transformed."""
    if not settings.excluded_prefixes and not settings.transformations:
        return requests
    kept = {n: a for n, a in requests.items() if not n.startswith(settings.excluded_prefixes or ("\0",))}
    made: dict[str, int] = {}
    for rule in settings.transformations:
        if rule.resource not in kept:
            continue
        for output, factor in rule.outputs.items():
            product, scale = kept[rule.resource] * factor, MILLI
            if rule.multiply_by in kept:
                product, scale = product * kept[rule.multiply_by], scale * MILLI
            made[output] = made.get(output, 0) - (-product // scale)
    replaced = {rule.resource for rule in settings.transformations if rule.replace}
    charge = {n: amount for n, amount in kept.items() if n not in replaced}
    # A negative output takes off what others make, never what the pod itself asks for.
    return amounts.add(charge, {n: max(0, amount) for n, amount in made.items()})


def _undeclared(queue: Queue, pod_set: PodSet, want: Want) -> Reason:
    return Reason(
        Code.NO_MATCHING_FLAVOR,
        message=f"pod set {pod_set.name}: no resource group of queue {queue.name} covers {want.resource}",
        node=f"queue {queue.name}",
        resource=want.resource,
        asked=want.amount({pod_set.name: pod_set.count}),
        help=f"add {want.resource} to a resource group of the queue, or ask for none of it",
    )


def _options(
    group: ResourceGroup, wants: tuple[Want, ...], company: tuple[PodSet, ...], flavors: Mapping[str, Flavor]
) -> tuple[Option, ...]:
    return tuple(
        Option(
            quotas.flavor,
            tuple(FlavorResource(quotas.flavor, want.resource) for want in wants),
            next(filter(None, (misfit(flavors.get(quotas.flavor), quotas.flavor, each) for each in company)), None),
        )
        for quotas in group.flavors
    )


def assign(
    request: Request,
    counts: Mapping[str, int],
    fungibility: Fungibility,
    judge: Judge,
    resume: Mapping[int, int] | None = None,
) -> Assignment:
    """Return the best flavors for ``counts`` pods of each set; its mode is NO_FIT when a group finds none.

    ``resume`` is that of an earlier assignment that came to nothing: the flavors it tried are passed over.
    """
    mode, level = Mode.FIT, 0
    chosen: dict[str, dict[str, str]] = {}
    usage: dict[FlavorResource, int] = {}
    needs: set[FlavorResource] = set()
    blocks: list[Block] = []
    decisive: tuple[Block, ...] = ()
    unfinished: dict[int, int] = {}
    seats: tuple[str, ...] = ()
    before = usage
    for index, choice in enumerate(request.choices):
        if choice.seats != seats:
            seats, before = choice.seats, dict(usage)
        start = 0 if resume is None else resume.get(index, 0)
        if any(counts.get(name, 0) for name in choice.seats):
            best = _scan(choice, counts, usage, fungibility, judge, start=start)
        else:
            best = _scan_idle(choice, counts, usage, fungibility, judge, start=start)
        blocks += best.blocks
        if 0 < best.next < len(choice.options):
            unfinished[index] = best.next
        if best.option is None:
            # Of pod sets that found no flavors for some of their resources nothing is kept.
            unfinished = {i: n for i, n in unfinished.items() if request.choices[i].seats != seats}
            level = max(level, best.top_level)
            return Assignment(Mode.NO_FIT, level, {}, before, frozenset(), tuple(blocks), best.blocks, unfinished)
        mode, level = min(mode, best.mode), max(level, best.top_level)
        for key, want in zip(best.option.keys, choice.wants, strict=True):
            for part in (want, *want.more):
                chosen.setdefault(part.pod_set, {})[want.resource] = key.flavor
            usage[key] = usage.get(key, 0) + want.amount(counts)
        needs.update(best.needs)
        if best.mode is not Mode.FIT:
            decisive += best.blocks
    return Assignment(mode, level, chosen, usage, frozenset(needs), tuple(blocks), decisive, unfinished)


@dataclass(slots=True)
class _Scanned:
    """What the scan of one choice came to."""

    option: Option | None = None
    mode: Mode = Mode.NO_FIT
    """The worst of all resources."""
    standing: tuple[Mode, int] = (Mode.NO_FIT, 0)
    """Mode and level of the resource that the queue's fungibility likes least: what flavors are compared by."""
    top_level: int = 0
    """The highest of all resources."""
    needs: tuple[FlavorResource, ...] = ()
    blocks: tuple[Block, ...] = ()
    next: int = 0
    """Where the scan would go on; 0 when it reached the end."""


def _scan_idle(
    choice: Choice,
    counts: Mapping[str, int],
    assumed: Mapping[FlavorResource, int],
    fungibility: Fungibility,
    judge: Judge,
    *,
    start: int,
) -> _Scanned:
    """Scan for pod sets without pods: what could hold one pod of each comes first, wherever an earlier scan stopped.

    Such a find is final: a gang that waits for something else does not get another turn for it.
    """
    best = _scan(_with_room(choice, assumed, judge), counts, assumed, fungibility, judge, start=0)
    if best.option is None:
        return _scan(choice, counts, assumed, fungibility, judge, start=start)
    best.next = 0
    return best


def _with_room(choice: Choice, assumed: Mapping[FlavorResource, int], judge: Judge) -> Choice:
    """Return ``choice`` with the flavors ruled out that could at best not hold one pod of each of its pod sets."""

    def holds_one(option: Option) -> bool:
        asked = (sum(part.each for part in (want, *want.more)) for want in choice.wants)
        pairs = zip(option.keys, asked, strict=True)
        return not any(judge.exceeds(key, assumed.get(key, 0) + amount) for key, amount in pairs)

    def kept(option: Option) -> Option:
        if option.misfit is not None or holds_one(option):
            return option
        return replace(option, misfit=f"flavor {option.flavor} could hold none of the pods")

    return replace(choice, options=tuple(map(kept, choice.options)))


def _scan(
    choice: Choice,
    counts: Mapping[str, int],
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
        found = _try_option(option, choice, counts, assumed, fungibility=fungibility, judge=judge)
        blocks += found.blocks
        if found.option is None:
            continue
        if _stops(found, fungibility):
            best = found
            best.next = index + 1
            break
        if best.option is None or _preferred(found.standing, best.standing, fungibility):
            best = found
    best.blocks = tuple(blocks)
    return best


def _try_option(
    option: Option,
    choice: Choice,
    counts: Mapping[str, int],
    assumed: Mapping[FlavorResource, int],
    *,
    fungibility: Fungibility,
    judge: Judge,
) -> _Scanned:
    standing, worst, top = (Mode.FIT, 0), Mode.FIT, 0
    needs: list[FlavorResource] = []
    blocks: list[Block] = []
    asked = [(k, assumed.get(k, 0) + want.amount(counts)) for k, want in zip(option.keys, choice.wants, strict=True)]
    beyond = tuple(Block(Code.EXCEEDS_MAX_QUOTA, key, amount) for key, amount in asked if judge.exceeds(key, amount))
    if beyond:
        # Whatever the other resources lack, no change of usage could help.
        return _Scanned(blocks=beyond)
    for key, amount in asked:
        verdict = judge.verdict(key, amount)
        if verdict.mode is not Mode.FIT:
            needs.append(key)
            blocks.append(Block(verdict.code or Code.WAITING_FOR_QUOTA, key, amount))
        if verdict.mode is Mode.NO_FIT:
            return _Scanned(blocks=tuple(blocks))
        worst, top = min(worst, verdict.mode), max(top, verdict.level)
        if _preferred(standing, (verdict.mode, verdict.level), fungibility):
            standing = (verdict.mode, verdict.level)
    return _Scanned(option, worst, standing, top, tuple(needs), tuple(blocks))


def _stops(found: _Scanned, fungibility: Fungibility) -> bool:
    """Return whether the scan ends here."""
    if found.mode <= Mode.NO_CANDIDATES:
        return False
    if found.mode < Mode.FIT and fungibility.when_can_preempt is SearchPolicy.TRY_NEXT_FLAVOR:
        return False
    return not (found.standing[1] > 0 and fungibility.when_can_borrow is SearchPolicy.TRY_NEXT_FLAVOR)


def _preferred(one: tuple[Mode, int], other: tuple[Mode, int], fungibility: Fungibility) -> bool:
    """Return whether mode and level ``one`` are better than ``other``."""
    if Mode.NO_CANDIDATES in (one[0], other[0]) and one[0] is not other[0]:
        return other[0] is Mode.NO_CANDIDATES
    if fungibility.preference is Preference.PREEMPTION_OVER_BORROWING:
        return (-one[1], one[0]) > (-other[1], other[0])
    return (one[0], -one[1]) > (other[0], -other[1])
