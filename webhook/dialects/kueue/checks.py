"""Kueue's admission checks: what a ClusterQueue asks for, and AdmissionChecks themselves.

Tutti is the controller of MultiKueue's check only, and only in a hub: a queue that names this check places its jobs in
the clusters of a MultiKueueConfig, and is active while the check is. A queue that names any other check admits nothing.
The hub writes the condition of the check (``fleet.roster``).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from webhook.dialects.field import Field
from webhook.dialects.fragment import Check, CheckRule, Fragment
from webhook.untyped.values import text

KIND: Final = "AdmissionCheck"
CONTROLLER: Final = "kueue.x-k8s.io/multikueue"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why a queue admits nothing because of its checks, in Kueue's word and in ours."""

    reason: str
    why: str
    fix: str


def rules(spec: Field, flavors: set[str]) -> tuple[CheckRule, ...]:
    """Return the checks that a queue asks for, in either of its fields."""
    strategy, flat = spec["admissionChecksStrategy"], spec["admissionChecks"]
    strategy.only(("admissionChecks",))
    stated = strategy["admissionChecks"]
    written = list(stated.items(least=1, most=64)) if stated.present else []
    names = [item["name"] for item in written] + list(flat.items())
    if strategy.present and flat.value:
        flat.error("repeats what admissionChecksStrategy says", "keep admissionChecksStrategy only")
    for name in names:
        if not 1 <= len(name.text()) <= 316:
            name.error("is not a name of 1 to 316 characters", "name an AdmissionCheck")
    _once(names)
    per_flavor = set()
    for item in written:
        item.only(("name", "onFlavors"))
        chosen = list(item["onFlavors"].items(most=64))
        per_flavor |= {item["name"].text()} if chosen else set()
        _once(chosen)
        for flavor in chosen:
            if flavor.text() not in flavors:
                flavor.error("is not a flavor of this queue", f"name one of {', '.join(sorted(flavors)) or 'none'}")
    return tuple(CheckRule(name.text(), name.path, name.text() in per_flavor) for name in names if name.text())


def read(at: Field, fragment: Fragment) -> None:
    """Take in an AdmissionCheck."""
    controller = at["spec"]["controllerName"]
    if not controller.text():
        controller.error("is missing", "name the controller of the check")
    elif controller.text() != CONTROLLER:
        controller.warn("is not followed by Tutti: a queue that names this check admits nothing", f"write {CONTROLLER}")
    inactive = "its hub has not looked at it yet"
    for condition in at["status"]["conditions"].items():
        if condition["type"].value == "Active":
            inactive = "" if condition["status"].value == "True" else text(condition["message"].value) or "no word why"
    if fragment.broken is None:
        fragment.admission_checks[fragment.source.name] = Check(controller.text(), inactive)


def verdict(asked: tuple[CheckRule, ...], known: Mapping[str, Check], *, hub: bool) -> Verdict | None:
    """Return why a queue that asks for these checks admits nothing; None when it may admit.

    ``hub``: checks are read here, so that one which is not known does not exist.
    """
    missing = [rule.name for rule in asked if hub and rule.name not in known]
    if missing:
        why = f"there is no AdmissionCheck {', '.join(missing)}"
        return Verdict("AdmissionCheckInactive", why, "create it, or remove it here; the queue is inactive until then")
    foreign = [rule.name for rule in asked if rule.name not in known or known[rule.name].controller != CONTROLLER]
    if foreign:
        why = f"admission checks are not supported: {', '.join(foreign)}"
        return Verdict("AdmissionCheckInactive", why, "remove them; in a hub, MultiKueue's checks work once they exist")
    if len(asked) > 1:
        why = f"names more than one check of MultiKueue: {', '.join(rule.name for rule in asked)}"
        return Verdict("MultipleMultiKueueAdmissionChecks", why, "keep one")
    for rule in asked:
        if rule.per_flavor:
            why = f"names MultiKueue's check {rule.name} for some flavors only"
            return Verdict("MultiKueueAdmissionCheckAppliedPerFlavor", why, "remove onFlavors")
        if known[rule.name].inactive:
            why = f"AdmissionCheck {rule.name} is not active: {known[rule.name].inactive}"
            return Verdict("AdmissionCheckInactive", why, "look at its MultiKueueConfig and the clusters that it names")
    return None


def _once(fields: list[Field]) -> None:
    found: set[str] = set()
    for at in fields:
        if at.text() in found:
            at.error("is listed twice", "list it once")
        found.add(at.text())
