"""Completion indexes of Indexed Jobs: the text in which a status keeps them, and those of pods."""

from collections.abc import Iterable
from typing import Final

from webhook.laboratory.simulated.objects.store import Stored

INDEX: Final = "batch.kubernetes.io/job-completion-index"


def indexes_of(found: Iterable[Stored]) -> set[int]:
    """Return the completion indexes of pods; one that somebody has taken the index from counts for none."""
    texts = ((pod.object["metadata"].get("annotations") or {}).get(INDEX, "") for pod in found)
    return {int(text) for text in texts if text.isdecimal()}


def parse_indexes(text: str | None) -> set[int]:
    """Return the indexes of ``completedIndexes`` or ``failedIndexes`` text such as ``0,2-4``; none without one."""
    found: set[int] = set()
    for part in filter(None, (text or "").split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found


def render_indexes(indexes: set[int]) -> str:
    """Return indexes in the compressed text form; runs of three and more, and pairs, use a dash as Kubernetes does."""
    parts: list[str] = []
    ordered = sorted(indexes)
    at = 0
    while at < len(ordered):
        end = at
        while end + 1 < len(ordered) and ordered[end + 1] == ordered[end] + 1:
            end += 1
        run = ordered[at : end + 1]
        parts.append(f"{run[0]}-{run[-1]}" if len(run) > 2 else ",".join(map(str, run)))
        at = end + 1
    return ",".join(parts)
