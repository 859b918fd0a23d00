"""What policy objects compile to, before it is merged into one Policy."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from webhook.core.model.policy import Cohort, Flavor, HyperNode, LocalQueue, Queue, Topology
from webhook.core.notation.problem import Problem
from webhook.dialects.field import Field


class Source(NamedTuple):
    """Which object something was read from."""

    group: str
    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"


class CheckRule(NamedTuple):
    """An admission check that a queue asks for."""

    name: str
    path: str
    """JSON pointer to where it is asked for."""
    per_flavor: bool
    """For some flavors only."""


class Check(NamedTuple):
    """An AdmissionCheck."""

    controller: str
    inactive: str
    """Why it is not active; empty when it is."""


@dataclass(slots=True, eq=False)
class Fragment:
    """What one object (or one tree of objects) defines, and what is wrong with it in itself."""

    source: Source
    queues: list[Queue] = field(default_factory=list)
    cohorts: list[Cohort] = field(default_factory=list)
    flavors: list[Flavor] = field(default_factory=list)
    topologies: list[Topology] = field(default_factory=list)
    hyper_nodes: list[HyperNode] = field(default_factory=list)
    local_queues: list[LocalQueue] = field(default_factory=list)
    namespace_queues: dict[str, str] = field(default_factory=dict)
    queue_aliases: dict[str, str] = field(default_factory=dict)
    priority_classes: dict[str, int] = field(default_factory=dict)
    check_rules: dict[str, tuple[CheckRule, ...]] = field(default_factory=dict)
    """By the queue that asks for them."""
    admission_checks: dict[str, Check] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    @property
    def broken(self) -> str | None:
        """The first error as a sentence for the inactive queue; None when the object compiles."""
        first = next((problem for problem in self.problems if not problem.warning), None)
        return None if first is None else f"{self.source} does not compile: {first}"


def source_of(obj: Mapping[str, object]) -> Source:
    """Return which object ``obj`` is; missing parts are empty."""
    metadata = obj.get("metadata")
    fields = metadata if isinstance(metadata, Mapping) else {}
    group, slash, _ = str(obj.get("apiVersion") or "").rpartition("/")
    return Source(
        group if slash else "",
        str(obj.get("kind") or ""),
        str(fields.get("namespace") or ""),
        str(fields.get("name") or ""),
    )


def opened(obj: Mapping[str, object]) -> tuple[Fragment, Field]:
    """Return an empty fragment for ``obj`` and the whole document as a field, which notes problems in it."""
    fragment = Fragment(source_of(obj))
    at = Field(obj, "", fragment.problems)
    if not fragment.source.name:
        at["metadata"]["name"].error("the object has no name", "set metadata.name")
    else:
        at["metadata"]["name"].subdomain()
    return fragment, at
