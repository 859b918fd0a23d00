"""Bytes that four processes read are worked out once: each of them makes the same of the same bytes.

Reading is most of what a story costs, and it is pure. What depends on the process that reads stays with it: whether a
job concerns it, and with what else it reads jobs (``ReadContext``), of which there is one result each.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from webhook.cluster import feeds
from webhook.cluster.nodes import node
from webhook.jobs.kinds.kind import JobKind
from webhook.jobs.plain_pods import pod
from webhook.jobs.pricing.context import ReadContext
from webhook.jobs.reading import job
from webhook.kube import informer

OF_BYTES: Final[tuple[tuple[Any, str], ...]] = (
    (job, "document_of"),
    (pod, "decode"),
    (node, "decode"),
    (feeds, "plain"),
    (informer, "read_event"),
)
"""Functions of bytes alone, where they are looked up."""


@contextmanager
def read_once() -> Iterator[None]:
    """Keep what was read until the story is over."""
    usual = [(module, name, getattr(module, name)) for module, name in (*OF_BYTES, (job, "read"))]
    try:
        for module, name in OF_BYTES:
            setattr(module, name, _kept(getattr(module, name)))
        job.read = _Jobs(job.read)  # type: ignore[assignment]
        yield
    finally:
        for module, name, function in usual:
            setattr(module, name, function)


def _kept(function: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    known: dict[bytes, Any] = {}

    def read(raw: bytes) -> Any:
        found = known.get(raw)
        if found is None:
            found = known[raw] = function(raw)
        return found

    return read


class _Jobs:
    """``job.read``, once for each document and context."""

    def __init__(self, read: Callable[..., Any]) -> None:
        self._read = read
        self._contexts: list[ReadContext] = []
        self._numbers: dict[int, int] = {}
        """By identity of a context, which ``_seen`` keeps: the number of the first that was equal to it."""
        self._seen: list[object] = []
        self._known: dict[tuple[int, str, str, int], Any] = {}

    def __call__(
        self, kind: JobKind, document: Mapping[str, Any], context: ReadContext, kinds: Mapping[str, JobKind]
    ) -> Any:
        key = (id(document), kind.key, kind.version, self._number(context))
        found = self._known.get(key)
        if found is None:
            self._seen.append(document)
            found = self._known[key] = self._read(kind, document, context, kinds)
        return found

    def _number(self, context: ReadContext) -> int:
        number = self._numbers.get(id(context))
        if number is None:
            if context not in self._contexts:
                self._contexts.append(context)
            number = self._numbers[id(context)] = self._contexts.index(context)
            self._seen.append(context)
        return number
