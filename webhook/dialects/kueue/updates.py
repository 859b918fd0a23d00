"""Kueue's rules for updates: what may not change, and what was wrong before and need not be corrected at once."""

from collections.abc import Mapping, Sequence

from webhook.core.notation import names
from webhook.core.notation.problem import Problem
from webhook.dialects.field import Field


def immutable_changes(old: Mapping[str, object], new: Mapping[str, object]) -> tuple[Problem, ...]:
    """Return what an update changes that may not change: a LocalQueue's target, a flavor that has a topology, levels.

    They are rules of the schemas; that of the target compares two targets, so one may be added or taken away, and those
    of levels that end with single nodes may change.
    """
    problems: list[Problem] = []
    before, after = Field(old, "", [])["spec"], Field(new, "", problems)["spec"]
    match new.get("kind"):
        case "LocalQueue":
            target, known = after["clusterQueue"], before["clusterQueue"]
            if target.present and known.present and target.value != known.value:
                target.error(
                    f"the target of a LocalQueue cannot change from {known.value!r}", "create another LocalQueue"
                )
        case "ResourceFlavor":
            if before["topologyName"].present and after.value != before.value:
                after.error("a flavor with a topology cannot change", "create another ResourceFlavor")
        case "Topology":
            known_levels, levels = _labels(before), _labels(after)
            if levels != known_levels and not levels[-1:] == known_levels[-1:] == [names.HOSTNAME]:
                after["levels"].error(
                    f"levels cannot change from {known_levels}",
                    "create another Topology; only levels that end with kubernetes.io/hostname may change",
                )
    return tuple(problems)


def _labels(spec: Field) -> list[str]:
    return [level["nodeLabel"].text() for level in spec["levels"].items()]


def tolerated_paths(old: Mapping[str, object], new: Mapping[str, object]) -> frozenset[str]:
    """Return where a ClusterQueue may go on naming flavors that it does not have: below checks that stay as they were.

    Kueue once took any flavor there. It lets an update pass that changes neither the flavors of the queue nor the
    ``onFlavors`` of the check, in whatever order they are listed.
    """
    if new.get("kind") != "ClusterQueue":
        return frozenset()
    before, after = Field(old, "", [])["spec"], Field(new, "", [])["spec"]
    if _flavors(before) != _flavors(after):
        return frozenset()
    known = {check["name"].text(): _texts(check["onFlavors"]) for check in _checks(before)}
    return frozenset(
        flavor.path
        for check in _checks(after)
        if known.get(check["name"].text()) == _texts(check["onFlavors"])
        for flavor in check["onFlavors"].items()
    )


def _checks(spec: Field) -> Sequence[Field]:
    return list(spec["admissionChecksStrategy"]["admissionChecks"].items())


def _flavors(spec: Field) -> list[str]:
    return sorted(
        flavor["name"].text() for group in spec["resourceGroups"].items() for flavor in group["flavors"].items()
    )


def _texts(at: Field) -> list[str]:
    return sorted(item.text() for item in at.items())
