"""``clusterAffinity`` and ``clusterAffinities`` of a policy: which members it allows, and which are asked first.

As in Karmada, names and labels must both fit, and an absent or empty list of names, or selector, fits every member.
What cannot be read fits none: a gang that waits is better than one in a member that its policy meant to leave out.
Labels are those of the MultiKueueCluster of a member's name; without one no selector fits, not even one that asks for a
label to be absent: nobody has said anything of that member. Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from webhook.core.model.policy import LabelSelector
from webhook.core.notation.problem import Problem
from webhook.dialects.field import PROBLEMS_MAX, Field
from webhook.dialects.selector import label_selector

KNOWN: Final = frozenset({"clusterNames", "exclude", "labelSelector"})
GROUPS_MAX: Final = 16
TERMS_MAX: Final = 64
"""Labels, expressions and values of a selector: they are compared with the labels of each member."""

Labels = Mapping[str, str] | None
"""Of the MultiKueueCluster of a member's name; None: there is none."""


@dataclass(frozen=True, slots=True)
class Affinity:
    """One group of members."""

    only: frozenset[str] | None = None
    """Members that may be asked; None: all."""
    exclude: frozenset[str] = frozenset()
    selector: LabelSelector | None = None
    """None: any labels, or none at all, will do."""

    def names(self, member: str) -> bool:
        """Return whether a member is in the group if its labels fit."""
        return member not in self.exclude and (self.only is None or member in self.only)

    def takes(self, member: str, labels: Labels) -> bool:
        """Return whether a member is in the group."""
        fits = self.selector is None or (labels is not None and self.selector.matches(labels))
        return fits and self.names(member)


class Place(NamedTuple):
    """Where a member is among the groups of a policy."""

    labels: Labels
    """The member's, by which it was found."""
    rank: int | None
    """The first group that it is in; None: it is in none."""
    why: str
    """What besides names keeps it out of all groups, in words that follow a colon; nothing if names do."""


NOBODY: Final = Affinity(only=frozenset())


def groups(placement: Field) -> tuple[Affinity, ...] | None:
    """Return the groups of a placement, the preferred one first; None where it has none: every member will do."""
    one, several = placement["clusterAffinity"], placement["clusterAffinities"]
    if one.present:
        if several.present:
            # Karmada refuses both together.
            several.warn("is not honoured beside clusterAffinity", "write clusterAffinity or clusterAffinities")
        return (_affinity(one, KNOWN),)
    if not several.present or several.value == []:
        return None
    return tuple(_affinity(each, KNOWN | {"affinityName"}) for each in several.items(most=GROUPS_MAX))


def place(among: tuple[Affinity, ...], member: str, labels: Labels) -> Place:
    """Return where among these groups a member is."""
    rank = next((at for at, group in enumerate(among) if group.takes(member, labels)), None)
    return Place(labels, rank, "" if rank is not None else _why_none(among, member, labels))


def _why_none(among: tuple[Affinity, ...], member: str, labels: Labels) -> str:
    if not any(group.names(member) for group in among):
        return ""
    if labels is None:
        return f"it asks for labels, and there is no MultiKueueCluster {member} to have any"
    return f"the labels of MultiKueueCluster {member} do not match"


def _affinity(at: Field, known: frozenset[str]) -> Affinity:
    for key in sorted(at.mapping().keys() - known):
        at[key].warn("is not honoured", f"known here: {', '.join(sorted(known))}")
    names, readable = at["clusterNames"], isinstance(at.value, Mapping)
    selector, fits = _selector(at["labelSelector"])
    if not (readable and fits):
        return NOBODY
    listed = frozenset(each.text() for each in names.items())
    anybody = not names.present or names.value == []
    return Affinity(None if anybody else listed, frozenset(each.text() for each in at["exclude"].items()), selector)


def _selector(at: Field) -> tuple[LabelSelector | None, bool]:
    """Return a selector, None where it fits every member; and whether it was read: what is wrong makes it wider."""
    noted: list[Problem] = []
    selector = label_selector(Field(at.value, at.path, noted))
    if selector is not None:
        values = sum(1 + len(each.values) for each in selector.match_expressions)
        if (terms := values + len(selector.match_labels)) > TERMS_MAX:
            what = f"has {terms} labels, expressions and values"
            Field(at.value, at.path, noted).error(what, f"write at most {TERMS_MAX}")
        if not (selector.match_labels or selector.match_expressions):
            selector = None
    at.problems += noted[: max(0, 2 * PROBLEMS_MAX - len(at.problems))]
    return selector, all(each.warning for each in noted)
