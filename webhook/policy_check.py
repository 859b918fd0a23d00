"""``tutti policy check``: compile policy files as the cluster would, before they are applied.

Prints the quota tree that they make together and what is wrong: where, which value, why and how to mend it. Files may
hold any objects; those that are no policy are passed over. Needs no cluster.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.tree import Tree

from webhook.core import quantity
from webhook.core.policy import Diagnostic, Policy, StopPolicy
from webhook.core.quota_tree import Node, QuotaTree
from webhook.dialects import config_map, merge, resource_quota
from webhook.dialects.registry import RESOURCE_QUOTA, resource_of
from webhook.errors import PolicyError

Object = Mapping[str, Any]
WRONG: Final = 2
"""Exit status when something does not compile; warnings alone do not count."""


def run(files: Iterable[Path], console: Console | None = None) -> int:
    """Print what the policy objects in ``files`` mean and return the exit status.

    Raises PolicyError for files that cannot be read.
    """
    out = console or Console()
    objects, quotas, problems = _sorted(list(_objects(files)))
    policy = merge.compile_policy(objects)
    problems += policy.diagnostics
    for quota in quotas:
        name = f"ResourceQuota {quota['metadata'].get('namespace', 'default')}/{quota['metadata'].get('name')}"
        problems += [_at(name, problem) for problem in resource_quota.compile_object(quota)[1]]
    _print_tree(out, policy)
    _print_problems(out, problems)
    errors = sum(1 for problem in problems if not problem.warning)
    out.print(
        f"{len(objects)} policy objects, {len(quotas)} ResourceQuotas: "
        f"{errors} errors, {len(problems) - errors} warnings",
        highlight=False,
    )
    return WRONG if errors else 0


# -- reading -----------------------------------------------------------------------------------------------------------


def _objects(files: Iterable[Path]) -> Iterator[Object]:
    for file in files:
        try:
            documents = list(yaml.safe_load_all(file.read_text()))
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise PolicyError((Diagnostic(str(file), "", str(error), "give a readable YAML file"),)) from error
        for document in documents:
            if isinstance(document, Mapping):
                items = document.get("items") if str(document.get("kind", "")).endswith("List") else None
                yield from (item for item in (items or [document]) if isinstance(item, Mapping))


def _sorted(found: Iterable[Object]) -> tuple[list[Object], list[Object], list[Diagnostic]]:
    """Return policy objects, ResourceQuotas, and what is wrong with ConfigMaps that hold policy."""
    objects: list[Object] = []
    quotas: list[Object] = []
    problems: list[Diagnostic] = []
    for obj in found:
        group = str(obj.get("apiVersion", "")).rpartition("/")[0]
        resource = resource_of(group, str(obj.get("kind", "")))
        if resource is RESOURCE_QUOTA:
            quotas.append(obj)
        elif resource is not None:
            objects.append(obj)
        elif obj.get("kind") == "ConfigMap" and (obj.get("metadata") or {}).get("name") == config_map.NAME:
            inside, wrong = config_map.objects_of(obj)
            objects.extend(inside)
            problems.extend(wrong)
    return objects, quotas, problems


def _at(name: str, problem: Diagnostic) -> Diagnostic:
    return Diagnostic(f"{name}#{problem.path}", problem.value, problem.message, problem.fix, problem.warning)


# -- printing ----------------------------------------------------------------------------------------------------------


def _print_tree(out: Console, policy: Policy) -> None:
    tree = QuotaTree(policy)
    roots = [node for node in tree.nodes if node.parent is None]
    for root in sorted(roots, key=lambda node: (node.is_queue, node.name)):
        out.print(_branch(root, policy), highlight=False)


def _branch(node: Node, policy: Policy, above: Tree | None = None) -> Tree:
    label = _label(node, policy)
    branch = Tree(label) if above is None else above.add(label)
    for line in _quota_lines(node):
        branch.add(line)
    for who in _users(node, policy):
        branch.add(f"[dim]{escape(who)}[/dim]")
    for child in sorted(node.children, key=lambda child: (child.is_queue, child.name)):
        _branch(child, policy, branch)
    return branch


def _label(node: Node, policy: Policy) -> str:
    if not node.is_queue:
        return f"cohort [bold]{escape(node.name)}[/bold]"
    queue = policy.queues[node.name]
    label = f"queue [bold]{escape(node.name)}[/bold]  {queue.dialect}, {queue.strategy}"
    if queue.stop_policy is not StopPolicy.NONE:
        label += f", [yellow]stopped ({queue.stop_policy})[/yellow]"
    return label + (f"  [red]inactive: {escape(queue.inactive)}[/red]" if queue.inactive else "")


def _quota_lines(node: Node) -> Iterator[str]:
    for key, quota in node.quotas.items():
        text = f"{key.resource} ({key.flavor}): owns {quantity.render(node.subtree[key], key.resource)}"
        if node.parent is not None:
            if quota.borrowing_limit is not None:
                most = node.subtree[key] + quota.borrowing_limit
                text += f", at most {quantity.render(most, key.resource)}"
            if quota.lending_limit is not None:
                text += f", lends {quantity.render(quota.lending_limit, key.resource)}"
        yield escape(text)


def _users(node: Node, policy: Policy) -> Iterator[str]:
    if node.is_queue:
        for local in policy.local_queues.values():
            if local.queue == node.name:
                yield f"LocalQueue {local.namespace}/{local.name}"
        for namespace, queue in policy.namespace_queues.items():
            if queue == node.name:
                yield f"all jobs of namespace {namespace}"


def _print_problems(out: Console, problems: Iterable[Diagnostic]) -> None:
    for problem in sorted(problems, key=lambda problem: (problem.warning, problem.path)):
        word = "[yellow]warning[/yellow]" if problem.warning else "[red]error[/red]"
        grid = Table.grid(padding=(0, 2))
        grid.add_row(word, f"[bold]{escape(problem.path)}[/bold]")
        for name, text in (("value", problem.value), ("what", problem.message), ("fix", problem.fix)):
            if text:
                grid.add_row(f"[dim]{name}[/dim]", escape(text))
        out.print(grid, highlight=False)
