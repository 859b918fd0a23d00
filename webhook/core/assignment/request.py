"""What a gang asks of its queue: per pod set which resources, and from which flavors each could be taken.

Compiled once per class of gangs that ask the same; it does not depend on usage. Resources are charged as the settings
say (excluded prefixes, transformations), grouped as the queue groups them, and matched with flavors by ``misfits``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from webhook.core.assignment.node_match import misfit
from webhook.core.ledger.record import MAX_JOBS_REQUEST
from webhook.core.model.frozen import frozen
from webhook.core.model.gang import Gang, PodSet
from webhook.core.model.policy import Flavor, Queue, ResourceGroup
from webhook.core.model.settings import EngineSettings
from webhook.core.notation import amounts
from webhook.core.notation.amounts import FlavorResource
from webhook.core.notation.names import GUARANTEED, MAX_JOBS, PREEMPTIBLE_JOBS
from webhook.core.notation.problem import some
from webhook.core.notation.quantity import MILLI
from webhook.core.reasons.reasons import Code, Reason

ClassKey = tuple[object, ...]
"""What gangs of one queue have in common that get the same answer."""

NAMED_MAX = 5
"""Pod sets and resources that a reason names."""


@frozen
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

    @property
    def has_alternatives(self) -> bool:
        """Some resource could come from more than one flavor."""
        return any(len(choice.options) > 1 for choice in self.choices)

    @property
    def has_one_way(self) -> bool:
        """Each resource can come from one flavor and no other."""
        return self.refusal is None and all(len(c.options) == 1 and c.options[0].misfit is None for c in self.choices)


def compile_request(gang: Gang, queue: Queue, flavors: Mapping[str, Flavor], settings: EngineSettings) -> Request:
    """Return what ``gang`` asks of ``queue``, with the flavors each resource group offers to each pod set."""
    if gang.refusal is not None:
        return Request(refusal=gang.refusal)
    choices: list[tuple[object, Choice]] = []
    charges: dict[str, Mapping[str, int]] = {}
    ignores_undeclared = queue.ignores_undeclared or settings.ignore_undeclared
    jobs: set[str] = set()
    uncovered: list[tuple[PodSet, tuple[Want, ...]]] = []
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
        undeclared = tuple(wants[name] for name in sorted(asked) if name in wants)
        if undeclared and not ignores_undeclared:
            uncovered.append((pod_set, undeclared))
    if uncovered:
        return Request(charges=charges or None, refusal=_undeclared(queue, uncovered))
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


def _undeclared(queue: Queue, found: Sequence[tuple[PodSet, tuple[Want, ...]]]) -> Reason:
    """Return the reason of what pod sets ask that no resource group has: all of it, up to a number."""
    pod_set, (want, *_) = found[0]
    resources = list(dict.fromkeys(each.resource for _, wants in found for each in wants))

    def told(lacking: tuple[PodSet, tuple[Want, ...]]) -> str:
        of = some([each.resource for each in lacking[1]], NAMED_MAX)
        return f"pod set {lacking[0].name}: no resource group of queue {queue.name} covers {of}"

    return Reason(
        Code.NO_MATCHING_FLAVOR,
        message=some(found, NAMED_MAX, told, "; "),
        where=f"queue {queue.name}",
        resource=want.resource,
        asked=want.amount({pod_set.name: pod_set.count}),
        help=f"add {some(resources, NAMED_MAX)} to a resource group of the queue, or ask for none of it",
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
