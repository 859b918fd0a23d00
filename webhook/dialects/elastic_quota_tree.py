"""ElasticQuotaTree (``scheduling.sigs.k8s.io/v1beta1``) of kube-queue: a tree of minimums and maximums.

Upstream has neither a schema nor a webhook; what its documentation asks for is enforced here. A leaf is a queue named
by its full path (``root/team-a``), an inner vertex a cohort; ``limit_tree`` holds the arithmetic. What still runs in a
leaf that was given children or taken away is charged to the vertex above. Namespaces listed on a leaf are its own.
An absent maximum means unlimited and an absent minimum 0: as documented, and unlike upstream's code, which takes any
limit above 2147483647 for unlimited. The pseudo-resource max-jobs is read in both spellings.

A job labelled as not preemptible is held to the minimums too: all such jobs together use at most ``min``, so that they
never borrow, and they are never stopped for others. A leaf guarantees nothing of what it or a vertex above limits and
its ``min`` leaves out (upstream does not look at that), but for the number of jobs, which counts where it is listed.
Upstream does not look at the maximums for them and leaves the excess to its scheduler; here no job starts above a
maximum. The tree's label ``kube-queue/max-preempible-jobs`` (sic) caps the number of all the others.

Of a min, ``min - lendlimit`` is never lent: nothing at all of what the attribute leaves out, as upstream subtracts it.
Jobs are not reserved by it there, and here only where it lists them.

A leaf that has its min leaves room to starved gangs of others (``core.scheduler.borrowing_guard``). Upstream has it
behind a switch that is off: its rule does not ask whether holding a job back helps anybody. Ours does, and is on.

Not read: the labels ``quota.scheduling…/name`` by which upstream's jobs name another leaf than their namespace's, for
Koordinator puts them on pods that are none of ours (a queue label does that here); the attribute ``preempt-policy``;
and an over-sell rate, which is 1.

All is accounted in one flavor, ``default`` unless the root's attribute ``resourceflavors`` names another: limits are
sums over all capacity, so two flavors in one tree cannot be told apart. Flavors that a vertex below, or the root in a
list, names besides tie its pods to nodes in the scheduler, which reads the tree too; here they change nothing.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final

from webhook.core.model.policy import Flavor, LabelSelector, Preemption, PreemptionPolicy, Queue
from webhook.core.notation import names
from webhook.dialects.cohort_graph import MOST_LEVELS
from webhook.dialects.field import Field, is_label_key
from webhook.dialects.fragment import Fragment, opened
from webhook.dialects.limit_tree import LimitVertex, compile_tree

GROUP: Final = "scheduling.sigs.k8s.io"
KIND: Final = "ElasticQuotaTree"
DIALECT: Final = "elastic-quota-tree"
NAME: Final = "elasticquotatree"
NAMESPACE: Final = "kube-system"
"""Only the object of this name and namespace is honoured."""
QUEUE_NAMESPACE: Final = "kube-queue"
"""Where ``kubectl get queue`` finds the queues made from the tree."""
DEFAULT_FLAVOR: Final = "default"
ROOT: Final = "root"

_LEND_LIMIT: Final = "alibabacloud.com/lendlimit"
_FLAVORS: Final = "resourceflavors"
_MAX_PREEMPTIBLE: Final = "kube-queue/max-preempible-jobs"
_NODE_FIELDS: Final = ("name", "namespaces", "min", "max", "children", "attributes")
_HASH_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"


@dataclass(slots=True)
class _Vertex:
    """One vertex as read, with the field that it was read from."""

    at: Field
    path: str
    bare_name: str
    limits: LimitVertex
    namespaces: tuple[str, ...] = ()
    children: list["_Vertex"] = field(default_factory=list)

    def walk(self) -> Iterator["_Vertex"]:
        yield self
        for child in self.children:
            yield from child.walk()


def queue_object_name(path: str) -> str:
    """Return the object name of a queue in the namespace ``kube-queue``: its path made a DNS name, and a hash of it.

    Upstream ends the name in random letters; here they are a function of the path, so the name survives a restart.
    """
    digest = int.from_bytes(blake2b(path.encode(), digest_size=8).digest())
    letters = ""
    for _ in range(5):
        digest, index = divmod(digest, len(_HASH_LETTERS))
        letters += _HASH_LETTERS[index]
    plain = re.sub(r"[^a-z0-9.-]", "-", path.lower())[-57:].strip("-.")
    return f"{plain}-{letters}"


def compile_object(obj: Mapping[str, object]) -> Fragment:
    """Return what an ElasticQuotaTree defines. A tree with an error still claims its namespaces: its queues wait."""
    fragment, at = opened(obj)
    source = fragment.source
    if (source.namespace, source.name) != (NAMESPACE, NAME):
        at["metadata"]["name" if source.name != NAME else "namespace"].error(
            f"only the tree {NAMESPACE}/{NAME} is honoured", f"name it {NAME} in the namespace {NAMESPACE}"
        )
        return fragment
    at["spec"].only(("root",))
    if not isinstance(at["spec"]["root"].value, Mapping):
        at["spec"]["root"].error("the tree has no root", "write spec.root with min, max and children")
        return fragment
    root = _read(at["spec"]["root"], "", depth=1)
    _check_names(root)
    for vertex in root.walk():
        _check_limits(vertex)
    _check_root(root)
    most_preemptible = at["metadata"]["labels"][_MAX_PREEMPTIBLE]
    _tell_apart(root, most_preemptible.amount() if most_preemptible.present else None)
    _define(root, _flavor(root), fragment)
    return fragment


# -- reading ----------------------------------------------------------------------------------------------------------


def _read(at: Field, parent: str, depth: int) -> _Vertex:
    at.only(_NODE_FIELDS)
    name = at["name"].text()
    if parent and (not name or "/" in name):
        at["name"].error("is not the name of a quota", "name it, without '/'")
    path = f"{parent}/{name or '?'}" if parent else ROOT
    least = _amounts(at["min"])
    limits = LimitVertex(path, least, _amounts(at["max"]), _lend_limit(at["attributes"], least))
    namespaces = tuple(item.subdomain() for item in at["namespaces"].items())
    vertex = _Vertex(at, path, path.rpartition("/")[2], limits, namespaces)
    if depth > MOST_LEVELS:
        at.error(f"is more than {MOST_LEVELS} levels deep", "flatten the tree")
        return vertex
    vertex.children = [_read(child, path, depth + 1) for child in at["children"].items()]
    limits.children = [child.limits for child in vertex.children]
    return vertex


def _amounts(at: Field) -> dict[str, int]:
    result: dict[str, int] = {}
    for key, member in at.mapping().items():
        resource = names.MAX_JOBS if key in names.MAX_JOBS_SPELLINGS else key
        amount = member.amount()
        if not is_label_key(key):
            member.error(f"{key!r} is not a resource name", "write for example 'cpu' or 'nvidia.com/gpu'")
        elif resource in result and result[resource] != amount:
            member.error("is set differently under another spelling", f"keep {names.MAX_JOBS_SPELLINGS[0]} only")
        elif amount is not None:
            result[resource] = amount
    return result


def _lend_limit(attributes: Field, least: Mapping[str, int]) -> dict[str, int]:
    """Return the most that is lent of the resources in ``least``: all of them without the attribute.

    With it, none of those that its resource list (JSON text, or written as an object) leaves out; jobs are lent still.
    """
    at = attributes[_LEND_LIMIT]
    if not at.present:
        return {}
    unlisted = {resource: 0 for resource in least if resource != names.MAX_JOBS}
    return {**unlisted, **_lend_limit_list(at)}


def _lend_limit_list(at: Field) -> dict[str, int]:
    if not isinstance(at.value, str):
        return _amounts(at)
    try:
        value = json.loads(at.value)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        at.error("is not a JSON resource list", """write for example '{"cpu": "4"}'""")
        return {}
    return _amounts(Field(value, at.path, at.problems))


def _flavor(root: _Vertex) -> str:
    named = root.at["attributes"][_FLAVORS].text()
    chosen = DEFAULT_FLAVOR if not named or "," in named else named
    for vertex in root.walk():
        at = vertex.at["attributes"][_FLAVORS]
        if at.present and at.text() != chosen:
            at.warn(
                f"is left to the scheduler: the whole tree is accounted in the flavor {chosen!r}",
                "name one flavor, at the root, to have it tied to nodes here",
            )
    return chosen


# -- rules ------------------------------------------------------------------------------------------------------------


def _check_names(root: _Vertex) -> None:
    paths: dict[str, str] = {}
    bare: dict[str, str] = {}
    spaces: dict[str, str] = {}
    for vertex in root.walk():
        if vertex.path in paths:
            vertex.at["name"].error("a sibling has the same name", "name siblings differently")
        elif vertex.bare_name in bare:
            vertex.at["name"].error(f"{bare[vertex.bare_name]} has the same name", "use a name once in the tree")
        paths[vertex.path] = bare[vertex.bare_name] = vertex.path
        for index, namespace in enumerate(vertex.namespaces):
            at = Field(namespace, f"{vertex.at.path}/namespaces/{index}", vertex.at.problems)
            if vertex.children:
                at.error("namespaces belong on leaves", "list it on a leaf")
            if namespace in spaces:
                at.error(f"the namespace is listed at {spaces[namespace]} too", "list a namespace at one leaf")
            spaces[namespace] = vertex.path


def _check_limits(vertex: _Vertex) -> None:
    least, most = vertex.limits.minimum, vertex.limits.maximum
    for resource in sorted(least):
        if resource in most and least[resource] > most[resource]:
            _member(vertex.at["min"], resource).error("min exceeds max", "lower min or raise max")
    for resource in sorted({name for child in vertex.children for name in child.limits.minimum}):
        bound = least.get(resource, 0)
        if vertex.path == ROOT and resource not in least:
            if resource not in most:
                continue
            bound = most[resource]
        total = sum(child.limits.minimum.get(resource, 0) for child in vertex.children)
        if total > bound:
            vertex.at["min"].error(
                f"the children add up to a min of {resource} above its own",
                "raise this min or lower the children's",
            )
    for child in vertex.children:
        for resource in sorted(child.limits.maximum):
            if resource in most and child.limits.maximum[resource] > most[resource]:
                _member(child.at["max"], resource).warn(f"exceeds the max of {vertex.path}", "the lower of both holds")


def _member(at: Field, resource: str) -> Field:
    spellings = names.MAX_JOBS_SPELLINGS if resource == names.MAX_JOBS else (resource,)
    return next((at[key] for key in spellings if at[key].present), at[spellings[0]])


def _check_root(root: _Vertex) -> None:
    for resource in sorted({*root.limits.minimum, *root.limits.maximum}):
        if root.limits.minimum.get(resource) != root.limits.maximum.get(resource):
            root.at.warn(f"min and max of {resource} differ at the root", "the root's max is its capacity")
    if root.limits.lendable:
        root.at["attributes"][_LEND_LIMIT].warn("the root has no parent to lend to", "remove it")


# -- meaning ----------------------------------------------------------------------------------------------------------


def _tell_apart(root: _Vertex, most_preemptible: int | None) -> None:
    """Limit what may not be preempted to the minimums, and the number of gangs that may."""
    _guarantee(root, frozenset())
    if most_preemptible is not None:
        root.limits.maximum = {**root.limits.maximum, names.PREEMPTIBLE_JOBS: most_preemptible}


def _guarantee(vertex: _Vertex, bounded: frozenset[str]) -> None:
    """Limit what may not be preempted at and below ``vertex``; ``bounded`` is of what vertices above have limits."""
    limits = vertex.limits
    bounded |= {*limits.minimum, *limits.maximum} - {names.MAX_JOBS}
    for child in vertex.children:
        _guarantee(child, bounded)
    least = limits.minimum if vertex.children else {**dict.fromkeys(sorted(bounded), 0), **limits.minimum}
    guaranteed = {names.GUARANTEED + name: amount for name, amount in least.items()}
    limits.minimum, limits.maximum = {**limits.minimum, **guaranteed}, {**limits.maximum, **guaranteed}


def _define(root: _Vertex, flavor: str, fragment: Fragment) -> None:
    broken = fragment.broken
    tree = None if broken else compile_tree(root.limits, flavor)
    reclaim = Preemption(reclaim_within_cohort=PreemptionPolicy.ANY)
    for vertex in root.walk():
        if vertex.children:
            continue
        fragment.queues.append(
            Queue(
                name=vertex.path,
                dialect=DIALECT,
                cohort=tree.parents[vertex.path] if tree else None,
                resource_groups=tree.groups[vertex.path] if tree else (),
                namespace_selector=LabelSelector(),
                preemption=reclaim,
                ignores_undeclared=True,
                spares_non_preemptible=True,
                guards_borrowing=True,
                inactive=broken,
            )
        )
        fragment.queue_aliases.setdefault(vertex.bare_name, vertex.path)
        fragment.queue_aliases.setdefault(queue_object_name(vertex.path), vertex.path)
        for namespace in vertex.namespaces:
            fragment.namespace_queues.setdefault(namespace, vertex.path)
    if tree:
        fragment.cohorts.extend(tree.cohorts)
        if flavor == DEFAULT_FLAVOR:
            fragment.flavors.append(Flavor(DEFAULT_FLAVOR))
