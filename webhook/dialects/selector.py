"""metav1.LabelSelector, node taints and tolerations, as the API server validates them."""

from typing import Final

from webhook.core.model.gang import Requirement, Toleration
from webhook.core.model.policy import LabelSelector, Taint
from webhook.dialects.field import Field, is_label_key, is_label_value

_SELECTOR_OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist")
_TAINT_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_MOST: Final = 8


def label_selector(at: Field) -> LabelSelector | None:
    """Return the selector in ``at``; None when absent (it then selects nothing)."""
    if not at.present:
        return None
    at.only(("matchLabels", "matchExpressions"))
    expressions = tuple(_requirement(item) for item in at["matchExpressions"].items())
    return LabelSelector(labels(at["matchLabels"]), expressions)


def labels(at: Field, most: int | None = None) -> dict[str, str]:
    """Return a map of valid labels."""
    result = {}
    for key, member in at.mapping().items():
        if not is_label_key(key):
            member.error(f"{key!r} is not a label key", "write for example 'zone' or 'example.com/zone'")
        else:
            result[key] = _label_value(member)
    if most is not None and len(result) > most:
        at.error(f"has {len(result)} entries", f"write at most {most}")
    return result


def _requirement(at: Field) -> Requirement:
    key, operator = at["key"].label_key(), at["operator"].text()
    values = tuple(_label_value(item) for item in at["values"].items())
    if operator not in _SELECTOR_OPERATORS:
        at["operator"].error("is not an operator", f"write one of {', '.join(_SELECTOR_OPERATORS)}")
    elif operator in ("In", "NotIn") and not values:
        at["values"].error(f"{operator} needs values", "list at least one value")
    elif operator not in ("In", "NotIn") and values:
        at["values"].error(f"{operator} takes no values", "remove them")
    return Requirement(key, operator, values)


def _label_value(at: Field) -> str:
    value = at.text()
    if not is_label_value(value):
        at.error("is not a label value", "use at most 63 letters, digits, '-', '_' and '.'")
    return value


def taints(at: Field) -> tuple[Taint, ...]:
    """Return the node taints of a flavor: at most 8, unique by key and effect."""
    result: list[Taint] = []
    for item in at.items(most=_MOST):
        taint = Taint(item["key"].label_key(), _label_value(item["value"]), item["effect"].text())
        if taint.effect not in _TAINT_EFFECTS:
            item["effect"].error("is not a taint effect", f"write one of {', '.join(_TAINT_EFFECTS)}")
        if any((taint.key, taint.effect) == (other.key, other.effect) for other in result):
            item.error("repeats a taint of this key and effect", "keep one of them")
        result.append(taint)
    return tuple(result)


def tolerations(at: Field) -> tuple[Toleration, ...]:
    """Return the tolerations of a flavor: at most 8."""
    return tuple(_toleration(item) for item in at.items(most=_MOST))


def _toleration(at: Field) -> Toleration:
    key, operator = at["key"].text(), at["operator"].text("Equal")
    value, effect = _label_value(at["value"]), at["effect"].text()
    if operator not in ("Equal", "Exists"):
        at["operator"].error("is not an operator", "write Equal or Exists")
    if key and not is_label_key(key):
        at["key"].error("is not a label key", "write for example 'nvidia.com/gpu'")
    if not key and operator != "Exists":
        at["key"].error("an empty key needs the operator Exists", "name a key or write 'operator: Exists'")
    if operator == "Exists" and value:
        at["value"].error("Exists takes no value", "remove the value or write 'operator: Equal'")
    if effect and effect not in _TAINT_EFFECTS:
        at["effect"].error("is not a taint effect", f"write one of {', '.join(_TAINT_EFFECTS)}")
    seconds = at["tolerationSeconds"].integer(least=-(2**63), most=2**63 - 1)
    if seconds is not None and effect != "NoExecute":
        at["tolerationSeconds"].error("needs the effect NoExecute", "remove it or write 'effect: NoExecute'")
    return Toleration(key, operator, value, effect, seconds)
