"""Where a gang has failed, and which members have had their try with it: each cluster has one, by whatever name."""

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

CLUSTERS_OF_A_NAME: Final = 8
"""In which a gang may fail by one member's name. A member may say each time that it is another cluster."""


class FailedIn(NamedTuple):
    """Where a gang has failed."""

    member: str
    """The name by which its cluster was reached."""
    cluster: str = ""
    """Uid of its kube-system. "" where two members say that they are that cluster: which of them lies is not known."""


def note(failed: tuple[FailedIn, ...], there: Collection[FailedIn]) -> tuple[FailedIn, ...]:
    """Return where a gang has failed that has failed there too."""
    for each in there:
        if each not in failed and sum(each.member == known.member for known in failed) < CLUSTERS_OF_A_NAME:
            failed = (*failed, each)
    return failed


def tried(failed: Collection[FailedIn], clusters: Mapping[str, str]) -> set[str]:
    """Return the members that have had their try. ``clusters``: to which each name led when it answered last, or ""."""
    known = {each.cluster for each in failed} - {""}
    found = {name for name, cluster in clusters.items() if cluster in known}
    for name in {each.member for each in failed}:
        there = {each.cluster for each in failed if each.member == name}
        # A name may have been given to another cluster, as when two were swapped.
        if "" in {*there, clusters.get(name, "")} or len(there) >= CLUSTERS_OF_A_NAME:
            found.add(name)
    return found
