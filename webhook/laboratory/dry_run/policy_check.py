"""``tutti policy check``: compile policy files as the cluster would, before they are applied.

Prints the quota tree that they make together and what is wrong: where, which value, why and how to mend it. Files may
hold any objects; those that are no policy are passed over. Needs no cluster.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.markup import escape
from rich.tree import Tree

from webhook.commands import terminal
from webhook.config import Config
from webhook.core.model.policy import LabelSelector, Policy, StopPolicy
from webhook.core.notation import quantity
from webhook.core.notation.counted import counted
from webhook.core.notation.problem import Problem, shown, some
from webhook.core.quota.tree import QuotaTree, Vertex
from webhook.dialects import compiler
from webhook.dialects.fragment import source_of
from webhook.dialects.kueue import objects as kueue
from webhook.errors import WRONG
from webhook.laboratory.dry_run.files.objects import Object, PolicyFiles, label, read_located, sort_policy
from webhook.laboratory.dry_run.report import problem_documents
from webhook.laboratory.dry_run.tables import show_problem
from webhook.untyped import paths

_ORIGINS_SHOWN: Final = 5


def run(files: Iterable[Path], config: Config | None = None, console: Console | None = None) -> int:
    """Print what the policy objects in ``files`` mean and return the exit status; unreadable files are errors."""
    out = console or terminal.console()
    located, unread = read_located(files)
    found, origins = PolicyFiles(), _Origins()
    for obj, origin in located:
        one = sort_policy([obj])
        origins.note(one, origin)
        found.take(one)
    policy = compiler.compile_policy(found.objects)
    problems = [*unread, *found.problems, *policy.problems, *_open_to_all(policy)]
    if (config or Config()).fair_sharing is None:
        problems += _idle_weights(found.objects)
    _print_tree(out, policy)
    for problem in problem_documents(problems):
        show_problem(out, {**problem, "file": origins.of(problem["path"])})
    errors = sum(1 for problem in problems if not problem.warning)
    out.print(
        f"{counted(len(found.objects), 'policy object')}, {counted(len(found.quotas), 'ResourceQuota')}: "
        f"{counted(errors, 'error')}, {counted(len(problems) - errors, 'warning')}",
        highlight=False,
    )
    if found.others:
        kinds = Counter(str(other["kind"]) for other in found.others)
        listed = ", ".join(f"{number} {kind}" for kind, number in sorted(kinds.items()))
        out.print(f"passed over, being no policy: {listed}", highlight=False, markup=False)
    return WRONG if errors else 0


class _Origins:
    """Where each object was read that a problem may name; of two by one name both origins."""

    def __init__(self) -> None:
        self._origins: dict[str, dict[str, None]] = {}

    def note(self, read: PolicyFiles, origin: str) -> None:
        """Learn that what was ``read`` from one object of a file, and what is wrong with it, stands at ``origin``."""
        named = [str(source_of(obj)) for obj in (*read.objects, *read.quotas)]
        for name in (*named, *(_object_in(problem.path) for problem in read.problems)):
            self._origins.setdefault(name, {})[origin] = None

    def of(self, path: str) -> str:
        """Return where the object of a problem's path is; empty for one that is no object's, as a file's own."""
        found = list(self._origins.get(_object_in(path), ()))
        return some(found, _ORIGINS_SHOWN, between="; ")


def _object_in(path: str) -> str:
    return path.partition("#")[0]


def _idle_weights(objects: Iterable[Object]) -> Iterator[Problem]:
    """Yield the weights that decide nothing, because shares are not compared."""
    path = ("spec", "fairSharing", "weight")
    for obj in objects:
        weight = paths.find(obj, path)
        if weight is not None:
            fix = "write fairSharing in the configuration (--config names it), or leave the weight out"
            why = "has no effect: fair sharing is off"
            yield Problem(f"{label(obj)}#/{'/'.join(path)}", shown(weight), why, fix, warning=True)


def _open_to_all(policy: Policy) -> Iterator[Problem]:
    """Warn of queues that whoever may write a LocalQueue anywhere may use."""
    for name, queue in sorted(policy.queues.items()):
        if queue.dialect == kueue.DIALECT and queue.namespace_selector == LabelSelector():
            yield Problem(
                f"ClusterQueue {name}#/spec/namespaceSelector",
                "{}",
                "every namespace may use this queue, by a LocalQueue of its own",
                "select the namespaces that it is for, or make using it a right (manifests/overlays/right-to-use)",
                warning=True,
            )


# -- printing ----------------------------------------------------------------------------------------------------------


def _print_tree(out: Console, policy: Policy) -> None:
    tree = QuotaTree(policy)
    roots = [vertex for vertex in tree.vertices if vertex.parent is None]
    for root in sorted(roots, key=lambda vertex: (vertex.is_queue, vertex.name)):
        out.print(_branch(root, policy), highlight=False)


def _branch(vertex: Vertex, policy: Policy, above: Tree | None = None) -> Tree:
    label = _label(vertex, policy)
    branch = Tree(label) if above is None else above.add(label)
    for line in _quota_lines(vertex):
        branch.add(line)
    for who in _users(vertex, policy):
        branch.add(f"[dim]{escape(who)}[/dim]")
    for child in sorted(vertex.children, key=lambda child: (child.is_queue, child.name)):
        _branch(child, policy, branch)
    return branch


def _label(vertex: Vertex, policy: Policy) -> str:
    if not vertex.is_queue:
        return f"cohort [bold]{escape(vertex.name)}[/bold]"
    queue = policy.queues[vertex.name]
    label = f"queue [bold]{escape(vertex.name)}[/bold]  {queue.dialect}, {queue.strategy}"
    if queue.stop_policy is not StopPolicy.NONE:
        label += f", [yellow]stopped ({queue.stop_policy})[/yellow]"
    return label + (f"  [red]inactive: {escape(queue.inactive)}[/red]" if queue.inactive else "")


def _quota_lines(vertex: Vertex) -> Iterator[str]:
    for key, quota in vertex.quotas.items():
        if key.is_internal:
            continue
        text = f"{key.resource} ({key.flavor}): owns {quantity.render(vertex.subtree[key], key.resource)}"
        if vertex.parent is not None:
            if quota.borrowing_limit is not None:
                most = vertex.subtree[key] + quota.borrowing_limit
                text += f", at most {quantity.render(most, key.resource)}"
            if quota.lending_limit is not None:
                text += f", lends {quantity.render(quota.lending_limit, key.resource)}"
        yield escape(text)


def _users(vertex: Vertex, policy: Policy) -> Iterator[str]:
    if vertex.is_queue:
        for local in policy.local_queues.values():
            if local.queue == vertex.name:
                yield f"LocalQueue {local.namespace}/{local.name}"
        for namespace, queue in policy.namespace_queues.items():
            if queue == vertex.name:
                yield f"all jobs of namespace {namespace}"
