"""Resource groups of Kueue's ClusterQueue and Cohort: nominal quota, borrowing and lending limits.

Besides Kueue's absolute ``borrowingLimit`` and ``lendingLimit`` two percentages are read, both of the nominal quota:
``borrowingLimitPercent`` (0 or more) and ``lendablePercent`` (0 to 100). On a resource they stand for that resource; on
``spec`` they are the default for every resource of the object that states neither the amount nor the percentage. The
amount and the percentage on the same resource are a contradiction and refused. Percentages are rounded down to a
thousandth, so that never more is borrowed or lent than was said. A Cohort has no percentages: its limits speak of its
whole subtree, of which its own nominal quota says nothing.
"""

from dataclasses import dataclass
from typing import Final

from webhook.core.model.policy import FlavorQuotas, Quota, ResourceGroup
from webhook.dialects.field import Field

BORROWING_PERCENT: Final = "borrowingLimitPercent"
LENDING_PERCENT: Final = "lendablePercent"

_MOST_GROUPS: Final = 16
_MOST_IN_GROUP: Final = 64
_MOST_FLAVORS: Final = 256
_MOST_RESOURCES: Final = 256
_MOST_CELLS: Final = 512
_MOST_PERCENT: Final = 100_000


@dataclass(slots=True)
class _Rules:
    """What the object around a quota allows, and what it sets by default."""

    has_parent: bool
    is_cohort: bool
    borrowing_percent: int | None
    lending_percent: int | None


def resource_groups(spec: Field, *, has_parent: bool, is_cohort: bool) -> tuple[ResourceGroup, ...]:
    """Return ``spec.resourceGroups`` of a ClusterQueue or Cohort, checked by Kueue's rules.

    Totals over a group and over all groups are bounded in a ClusterQueue only.
    """
    rules = _Rules(
        has_parent,
        is_cohort,
        borrowing_percent=None,
        lending_percent=None,
    )
    rules.borrowing_percent = _percent(spec[BORROWING_PERCENT], rules, _MOST_PERCENT)
    rules.lending_percent = _percent(spec[LENDING_PERCENT], rules, 100)
    at = spec["resourceGroups"]
    flavors: set[str] = set()
    resources: set[str] = set()
    groups = tuple(_group(item, rules, flavors, resources) for item in at.items(most=_MOST_GROUPS))
    for what, names, most in (("flavors", flavors, _MOST_FLAVORS), ("resources", resources, _MOST_RESOURCES)):
        if len(names) > most and not is_cohort:
            at.error(f"names {len(names)} {what}", f"name at most {most}")
    return groups


def _group(at: Field, rules: _Rules, flavors: set[str], resources: set[str]) -> ResourceGroup:
    at.only(("coveredResources", "flavors"))
    covered, written = [], []
    for item in at["coveredResources"].items(least=1, most=_MOST_IN_GROUP):
        resource = item.label_key()
        written.append(resource)
        if resource in resources:
            item.error("is covered twice", "list a resource once, in one resource group")
        elif resource:
            resources.add(resource)
            covered.append(resource)
    quotas = tuple(_flavor(item, rules, written, flavors) for item in at["flavors"].items(least=1, most=_MOST_IN_GROUP))
    if len(quotas) * len(covered) > _MOST_CELLS and not rules.is_cohort:
        at.error(f"has {len(quotas)} x {len(covered)} quotas", f"write at most {_MOST_CELLS} in one group")
    return ResourceGroup(tuple(covered), quotas)


def _flavor(at: Field, rules: _Rules, covered: list[str], flavors: set[str]) -> FlavorQuotas:
    at.only(("name", "resources"))
    name = at["name"].subdomain()
    if not at["name"].value:
        at["name"].error("the flavor has no name", "name a ResourceFlavor")
    elif name in flavors:
        at["name"].error("the flavor is listed twice", "list a flavor once, in one resource group")
    flavors.add(name)
    items = list(at["resources"].items(least=1, most=_MOST_IN_GROUP))
    listed = [item["name"].text() for item in items]
    if listed != covered:
        at["resources"].error(
            f"lists {', '.join(listed) or 'nothing'}", f"list exactly {', '.join(covered)}, in this order"
        )
    return FlavorQuotas(name, {resource: _quota(item, rules) for resource, item in zip(listed, items, strict=True)})


def _quota(at: Field, rules: _Rules) -> Quota:
    at.only(("name", "nominalQuota", "borrowingLimit", "lendingLimit", BORROWING_PERCENT, LENDING_PERCENT))
    if not at["nominalQuota"].present:
        at["nominalQuota"].error("the nominal quota is missing", "write a quantity, '0' for none")
    nominal = at["nominalQuota"].amount() or 0
    borrowing = _limit(at["borrowingLimit"], at[BORROWING_PERCENT], nominal, rules, _MOST_PERCENT)
    if borrowing is None and rules.borrowing_percent is not None:
        borrowing = nominal * rules.borrowing_percent // 100
    lending = _limit(at["lendingLimit"], at[LENDING_PERCENT], nominal, rules, 100)
    if lending is None and rules.lending_percent is not None:
        lending = nominal * rules.lending_percent // 100
    if lending is not None and lending > nominal and not rules.is_cohort:
        at["lendingLimit"].error("is more than the nominal quota", "lend at most what the queue owns")
    return Quota(nominal, borrowing, lending)


def _limit(amount: Field, percent: Field, nominal: int, rules: _Rules, most_percent: int) -> int | None:
    if amount.present and percent.present:
        percent.error(f"is given together with {amount.path.rpartition('/')[2]}", "keep one of the two")
    if amount.present and not rules.has_parent:
        amount.error("there is no cohort to borrow from or lend to", "name a cohort or remove the limit")
    if amount.present:
        return amount.amount()
    share = _percent(percent, rules, most_percent)
    return None if share is None else nominal * share // 100


def _percent(at: Field, rules: _Rules, most: int) -> int | None:
    if at.present and rules.is_cohort:
        at.error("only a ClusterQueue has percentages", "write borrowingLimit or lendingLimit as an amount")
    elif at.present and not rules.has_parent:
        at.error("there is no cohort to borrow from or lend to", "name a cohort or remove the limit")
    return at.integer(least=0, most=most)
