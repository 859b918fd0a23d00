"""Arithmetic on amounts: mappings from resource name to thousandths of a unit. An absent name is 0."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from webhook.core.notation import quantity
from webhook.core.notation.names import GUARANTEED, PREEMPTIBLE_JOBS

Amounts = Mapping[str, int]
"""Resource name to thousandths of a unit."""


class FlavorResource(NamedTuple):
    """The unit of accounting: one resource of one flavor."""

    flavor: str
    resource: str

    @property
    def is_internal(self) -> bool:
        """It only tells gangs that may be preempted from those that may not: nothing to show as quota."""
        return self.resource.startswith((GUARANTEED, PREEMPTIBLE_JOBS))


def parse(quantities: Mapping[str, object]) -> dict[str, int]:
    """Return the amounts of a Kubernetes resource list. Raises QuantityError naming the resource."""
    amounts = {}
    for name, value in quantities.items():
        try:
            amounts[name] = quantity.parse(value)
        except quantity.QuantityError as error:
            raise quantity.QuantityError.of(error.problem.within(name)) from None
    return amounts


def add(left: Amounts, right: Amounts) -> dict[str, int]:
    """Return ``left + right``."""
    total = dict(left)
    for name, amount in right.items():
        total[name] = total.get(name, 0) + amount
    return total


def scale(amounts: Amounts, factor: int) -> dict[str, int]:
    """Return each amount times ``factor``."""
    return {name: amount * factor for name, amount in amounts.items()}


def total(parts: Iterable[Amounts]) -> dict[str, int]:
    """Return the sum of ``parts``."""
    result: dict[str, int] = {}
    for part in parts:
        for name, amount in part.items():
            result[name] = result.get(name, 0) + amount
    return result


def maximum(left: Amounts, right: Amounts) -> dict[str, int]:
    """Return the larger of both per resource."""
    result = dict(left)
    for name, amount in right.items():
        if amount > result.get(name, 0):
            result[name] = amount
    return result


def quantities(amounts: Amounts) -> dict[str, str]:
    """Return the Kubernetes resource list of amounts, by name."""
    return {name: quantity.render(amount, name) for name, amount in sorted(amounts.items())}


def render(amounts: Amounts) -> str:
    """Return amounts as a person reads them, for example ``4 nvidia.com/gpu, 8 cpu``."""
    return ", ".join(f"{text} {name}" for name, text in quantities(amounts).items()) or "nothing"
