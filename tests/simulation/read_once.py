"""Bytes that four processes read are worked out once: each of them makes the same of the same bytes.

Reading is most of what a story costs, and it is pure. What depends on the process that reads stays with it: whether a
job concerns it, and with what else it reads jobs (``ReadContext``), of which there is one result each.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import orjson

from webhook.cluster import feeds
from webhook.cluster.nodes import node
from webhook.core.ledger import text as ledger_text
from webhook.core.model.gang import PodPrice
from webhook.dialects import compiler
from webhook.jobs.kinds.kind import JobKind
from webhook.jobs.plain_pods import pod
from webhook.jobs.pricing import pod_requests
from webhook.jobs.pricing.context import ReadContext
from webhook.jobs.reading import job, pod_set
from webhook.kube import informer
from webhook.server.pods import changes, validate
from webhook.wire import nesting
from webhook.wire.watch import read_metadata

OF_BYTES: Final[tuple[tuple[Any, str], ...]] = (
    (job, "document_of"),
    (pod, "decode"),
    (node, "decode"),
    (feeds, "plain"),
    (informer, "read_event"),
)
"""Functions of bytes alone, where they are looked up."""
PRICES: Final[tuple[tuple[Any, str], ...]] = tuple(
    (each, "price") for each in (pod_requests, pod, pod_set, changes, validate)
)
"""What a pod costs depends on its spec alone, and of most specs there are many."""


@contextmanager
def read_once() -> Iterator[None]:
    """Keep what was read until the story is over."""
    others = (
        (ledger_text, "_decode_key"),
        (ledger_text, "_decode_meta"),
        (job, "read"),
        (informer, "read_metadata"),
        (nesting, "shallow"),
        (compiler, "_compile"),
    )
    decode_key = ledger_text._decode_key
    usual = [(module, name, getattr(module, name)) for module, name in (*OF_BYTES, *PRICES, *others)]
    price = _kept_prices(pod_requests.price)
    try:
        for module, name in OF_BYTES:
            setattr(module, name, _kept(getattr(module, name)))
        for module, name in PRICES:
            setattr(module, name, price)
        setattr(informer, "read_metadata", _kept_of_one(read_metadata))  # noqa: B010 - it is looked up there
        ledger_text._decode_key = _kept_entry(decode_key)
        ledger_text._decode_meta = _kept_meta(ledger_text._decode_meta)
        compiler._compile = _kept_policy(compiler._compile)
        nesting.shallow = _kept_cut(nesting.shallow)
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


def _kept_of_one(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """By identity: all that read a line share what it holds."""
    known: dict[int, tuple[Any, Any]] = {}

    def read(raw: Any) -> Any:
        found = known.get(id(raw))
        if found is None:
            found = known[id(raw)] = (raw, function(raw))
        return found[1]

    return read


def _kept_entry(function: Callable[[str, str], Any]) -> Callable[[str, str], Any]:
    known: dict[tuple[str, str], Any] = {}

    def read(key: str, text: str) -> Any:
        found = known.get((key, text))
        if found is None:
            found = known[key, text] = function(key, text)
        return found

    return read


def _kept_meta(function: Callable[[Mapping[str, str]], Any]) -> Callable[[Mapping[str, str]], Any]:
    known: dict[str, Any] = {}

    def read(data: Mapping[str, str]) -> Any:
        text = data.get(ledger_text.META, "")
        found = known.get(text)
        if found is None:
            found = known[text] = function(data)
        return found

    return read


def _kept_policy(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """By identity: documents of the same bytes are one object by now."""
    known: dict[int, tuple[Any, Any]] = {}

    def read(document: Any, source: Any) -> Any:
        found = known.get(id(document))
        if found is None:
            found = known[id(document)] = (document, function(document, source))
        return found[1]

    return read


def _kept_cut(function: Callable[[bytes, int], bytes]) -> Callable[[bytes, int], bytes]:
    known: dict[tuple[bytes, int], bytes] = {}

    def shallow(raw: bytes, levels: int = nesting.LEVELS_MAX) -> bytes:
        found = known.get((raw, levels))
        if found is None:
            found = known[raw, levels] = function(raw, levels)
        return found

    return shallow


def _kept_prices(function: Callable[..., PodPrice]) -> Callable[..., PodPrice]:
    known: dict[tuple[bytes, str], PodPrice] = {}

    def price(
        pod_spec: Mapping[str, Any], overhead: Mapping[str, Any] | None = None, *, default_priority_class: str = ""
    ) -> PodPrice:
        try:
            key = (orjson.dumps((pod_spec, overhead)), default_priority_class)
        except TypeError:
            return function(pod_spec, overhead, default_priority_class=default_priority_class)
        found = known.get(key)
        if found is None:
            found = known[key] = function(pod_spec, overhead, default_priority_class=default_priority_class)
        return found

    return price


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
