"""Writes ``base/reconciler-policies.yaml``: what the reconciler's account may write on jobs, inside the API server.

RBAC lets it patch every job of every kind. These policies hold it to jobs that are gated, and there to what a start or
a stop writes: a stolen token changes no image, command, volume, account or size of anybody's job. Run
``python -m manifests.reconciler_policies`` after changing this file or the job kinds.
"""

import copy
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from manifests import cel, output
from manifests.cel import Family
from manifests.policies import ACCOUNT, IN_GATED, any_of, policy, validation, variables
from manifests.rules import job_rules
from webhook.core.notation import names
from webhook.jobs.kinds.kind import JobKind
from webhook.jobs.pod_sets.readers import FOLLOWERS
from webhook.jobs.reading.ours import OWN_ANNOTATIONS
from webhook.untyped.paths import render

TARGET: Final = Path(__file__).parent / "base" / "reconciler-policies.yaml"
BY_TUTTI: Final = {"name": "by-tutti", "expression": f"request.userInfo.username == '{ACCOUNT}'"}

Tree = dict[str, "Tree | None"]
"""Names of fields that may change, to what may change within them; None is anything. ``name[*]`` is a list of objects,
``name{*}`` a map of them."""

_PLACEMENT: Final[Tree] = {"nodeSelector": None, "tolerations": None}
_OF_POD: Final[Tree] = {"labels": None, "annotations": None, **_PLACEMENT}
_ELSEWHERE: Final[dict[str, Tree]] = {
    "argoproj.io": {"podMetadata": None, **_PLACEMENT, "templates[*]": {"metadata": None, **_PLACEMENT}},
    "sparkoperator.k8s.io": {"driver": _OF_POD, "executor": _OF_POD},
    "trainer.kubeflow.org": {"labels": None, "annotations": None, "podTemplateOverrides": None, "runtimePatches": None},
    "workload.codeflare.dev": {"components": None},
}
"""Kinds whose pods are not described by pod templates. What an AppWrapper wraps may be of any shape."""


def changes_of(family: Family) -> Tree:
    """Return what a start or a stop changes below ``spec``: labels and placement of pods, suspend fields, counts."""
    tree = copy.deepcopy(_ELSEWHERE.get(family.group, {}))
    for path in family.label_paths if family.group not in _ELSEWHERE else ():
        *steps, last = path.split(".")[1:]
        assert last == "metadata", f"{path}: say in _ELSEWHERE what changes in its kind"
        _within(tree, steps).update({"metadata": None, "spec": dict(_PLACEMENT)})
    for suspend in family.suspends:
        _within(tree, suspend[1:-1])[suspend[-1]] = None
    for count in counts_of(family):
        *steps, last = count.split(".")[1:]
        _within(tree, steps)[last] = None
    return tree


def counts_of(family: Family) -> dict[str, str]:
    """Return the numbers that a start lowers and a stop puts back, by dotted path, and the annotation by which the
    owner of a job allows that; empty where the kind has none for it.
    """
    found: dict[str, str] = {}
    for kind in family.kinds:
        for source in kind.pod_sets:
            if source.count is not None:
                items = f"{render(source.items)}{cel.STEP[source.layout]}." if source.items else ""
                found[f"{items}{render(source.count)}"] = source.minimum_annotation or ""
        if kind.reader in FOLLOWERS:
            path, annotation = FOLLOWERS[kind.reader]
            found[render(path)] = annotation
    return found


def _within(tree: Tree, steps: Sequence[str]) -> Tree:
    """Return the tree below some steps, which are made where they are not there."""
    for step in steps:
        below = tree.setdefault(step, {})
        assert below is not None
        tree = below
    return tree


def same(before: str, after: str, tree: Tree, depth: int = 0) -> str:
    """Return an expression: ``after`` differs from ``before`` in what ``tree`` names alone."""
    key, fields = f"k{depth}", any_of(sorted(map(_field, tree)))
    parts = [
        f"{after}.all({key}, {key} in {fields} || ({key} in {before} && {before}[{key}] == {after}[{key}]))",
        f"{before}.all({key}, {key} in {fields} || {key} in {after})",
    ]
    for name, below in sorted(tree.items()):
        if below is not None:
            parts.append(_below(before, after, name, below, depth + 1))
    return f"\n{'  ' * depth}&& ".join(parts)


def same_size(family: Family, before: str, after: str, old_notes: str) -> str:
    """Return an expression: no number of pods changes but where the job's owner allows it by an annotation.

    How far up it goes back after a start that lowered it is not judged: who has the token writes what says so.
    """
    kept = [
        f"({cel.step(before, path.removeprefix('spec.'))} == {cel.step(after, path.removeprefix('spec.'))}"
        f" || '{annotation}' in {old_notes})"
        for path, annotation in sorted(counts_of(family).items())
        if annotation
    ]
    return "\n&& ".join(kept)


def _below(before: str, after: str, name: str, tree: Tree, depth: int) -> str:
    """Return the same of one field. A list of one gives a value a name, which CEL has no other way for."""
    empty = "[]" if name.endswith("[*]") else "{}"
    was, now, old, new = f"was{depth}", f"now{depth}", f"old{depth}", f"new{depth}"
    if name.endswith("[*]"):
        within = f"size({now}) == size({was}) && {now}.all({new}, {was}.exists({old},\n"
        within += f"{'  ' * depth}{same(old, new, tree, depth)}))"
    elif name.endswith("{*}"):
        item = f"at{depth}"
        within = f"size({now}) == size({was}) && {now}.all({item}, {item} in {was}\n"
        within += f"{'  ' * depth}&& [{was}[{item}]].all({old}, [{now}[{item}]].all({new}, "
        within += f"{same(old, new, tree, depth)})))"
    else:
        within = same(was, now, tree, depth)
    started = (
        f"[{before}.?{_field(name)}.orValue({empty})].all({was}, [{after}.?{_field(name)}.orValue({empty})].all({now},"
    )
    return f"{started}\n{'  ' * depth}{within}))"


def _field(name: str) -> str:
    return name.removesuffix("[*]").removesuffix("{*}")


_VALUES: Final = {
    "before": "dyn(oldObject.?spec.orValue({}))",
    "after": "dyn(object.?spec.orValue({}))",
    "notes": cel.annotations_of("object"),
    "old_notes": cel.annotations_of("oldObject"),
}
"""What the rules speak of."""


_SIZES: Final = "the account tutti-reconciler may change the size of no job whose owner does not let it start smaller"


def rules(family: Family, prefix: str = "") -> dict[str, tuple[str, ...]]:
    """Return what each rule on a change says, and of which values it speaks, named with ``prefix``."""
    kept = any_of(sorted(OWN_ANNOTATIONS - {names.MANAGED_BY}))
    before, after, notes, old_notes = (prefix + name for name in _VALUES)
    sized = same_size(family, before, after, old_notes)
    sizes = {_SIZES: (sized, "before", "after", "old_notes")} if sized else {}
    return {
        "the account tutti-reconciler may start, stop and place a job, and change nothing else of it": (
            same(before, after, changes_of(family)),
            "before",
            "after",
        ),
        **sizes,
        "the account tutti-reconciler may change no annotation of a job but its own": (
            f"{notes}.all(key, key in {kept}\n  || (key in {old_notes} && {old_notes}[key] == {notes}[key]))\n"
            f"&& {old_notes}.all(key, key in {kept} || key in {notes})",
            "notes",
            "old_notes",
        ),
        "the account tutti-reconciler may change no label, finalizer or owner of a job": (
            f"{cel.labels_of('object')} == {cel.labels_of('oldObject')}\n"
            "&& object.metadata.?finalizers.orValue([]) == oldObject.metadata.?finalizers.orValue([])\n"
            "&& object.metadata.?ownerReferences.orValue([]) == oldObject.metadata.?ownerReferences.orValue([])",
        ),
    }


def harmless(family: Family) -> str:
    """Return an expression that holds only where every validation does.

    What meets it does not meet the policy's conditions. Of each change that does, the API server copies both objects
    three times more: for the validations, their messages and the audit.
    """
    parts = [f"({cel.concerns('oldObject', family)})"]
    for expression, *spoken_of in rules(family).values():
        # A list of one gives a value a name, which CEL has no other way for.
        named = "".join(f"[{_VALUES[name]}].all({name},\n" for name in spoken_of)
        parts.append(f"{named}{expression}{')' * len(spoken_of)}")
    return "\n&& ".join(parts)


def jobs(family: Family) -> list[dict[str, Any]]:
    """Return the policy of one family of job kinds."""
    # One condition, since all of them are evaluated whatever the first says, and most changes are by others.
    beyond = {
        "name": "by-tutti-beyond-a-start-or-stop",
        "expression": f"{BY_TUTTI['expression']} && !(\n{harmless(family)}\n)\n",
    }
    return policy(
        "ValidatingAdmissionPolicy",
        f"tutti-reconciler-{family.name}",
        job_rules([family], "UPDATE"),
        matchConditions=[beyond],
        variables=variables(ours=cel.either(IN_GATED, cel.concerns("oldObject", family)), **_VALUES),
        validations=[
            validation("variables.ours", "the account tutti-reconciler may change no job that has no queue"),
            *(validation(said[0], message) for message, said in rules(family, "variables.").items()),
        ],
    )


def documents(kinds: Sequence[JobKind]) -> list[dict[str, Any]]:
    """Return all policies and their bindings."""
    return [document for family in cel.families(kinds) for document in jobs(family)]


if __name__ == "__main__":
    sys.exit(output.run(documents, TARGET, "manifests.reconciler_policies", __doc__))
