"""Two weathers at once: what each has alone is tried for years of seeds, what two have together hardly ever is."""

from collections.abc import Iterator
from dataclasses import fields, replace
from random import Random
from typing import Any, Final

from tests.simulation.weather import Weather
from tests.simulation.weathers import WEATHERS

AND: Final = " + "
USUAL: Final = Weather()
POLICIES: Final = {"churn", "in_credits", "limits", "quota_tree", "two_flavors"}
APART: Final = (
    *(({policy}, POLICIES - {policy}) for policy in sorted(POLICIES)),
    # What ran before fills the usual queues, and has no rights in others.
    ({"adopted"}, {"nodes", "limits", "quota_tree", "two_flavors", "in_credits"}),
    # Who names a queue finds none there, and there are no racks.
    ({"quota_tree"}, {"racked", "ungated", "children_ask", "pod_groups", "ensembles", "shut", "unlisted", "replaced"}),
    # Who made a PodGroup, took queues or nodes away for a while, or holds a job, does not look what became of that.
    ({"restored"}, {"pod_groups", "ungated", "churn", "node_churn", "adopted"}),
    # Each takes LocalQueues away for a while, and expects them where they were.
    ({"ungated"}, {"churn"}),
    # Who has every queue stopped finds them all.
    ({"shut"}, {"churn"}),
    # A job to which a pod was lent that has succeeded may end in its time after all.
    ({"lent"}, {"limited"}),
    # That somebody leads meanwhile is looked at.
    ({"unlisted"}, {"orphaned", "cut_off", "restored", "set_back", "releases", "adopted"}),
    # Nothing in the cluster tells who rebuilds the ledger of a pod that is under review still while its gang has ended.
    ({"replaced"}, {"ledger_lost", "edited", "releases", "set_back"}),
    # A backup may be of a ledger that somebody had damaged; whoever leaves orphans does so where it stands.
    ({"restored", "orphaned"}, {"ledger_lost", "edited", "releases", "set_back"}),
)
"""What is in one weather and not in another that it meets: no story of both is told."""


def weather_of(name: str) -> Weather:
    """Return the weather of a name, or of two joined by ``AND``. Raises KeyError where there is none of that name."""
    first, *others = (WEATHERS[part][0] for part in name.split(AND))
    for other in others:
        first = _together(first, other)
    return first


def pairs(rng: Random) -> Iterator[str]:
    """Yield names of two weathers that may meet, for ever."""
    while True:
        first, second = rng.sample(sorted(WEATHERS), 2)
        if _may_meet(WEATHERS[first][0], WEATHERS[second][0]):
            yield f"{first}{AND}{second}"


def _may_meet(first: Weather, second: Weather) -> bool:
    alone, other = named_in(first), named_in(second)
    return not any((one & alone and others & other) or (one & other and others & alone) for one, others in APART)


def named_in(weather: Weather) -> set[str]:
    """Return what is otherwise in a weather than in the usual one."""
    return {each.name for each in fields(Weather) if getattr(weather, each.name) != getattr(USUAL, each.name)}


def _together(first: Weather, second: Weather) -> Weather:
    changes: dict[str, Any] = {}
    for name in named_in(second):
        ours, theirs = getattr(first, name), getattr(second, name)
        both = name in named_in(first) and isinstance(ours, int | float)
        changes[name] = max(ours, theirs) if both else theirs
    return replace(first, **changes)
