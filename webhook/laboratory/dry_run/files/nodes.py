"""Nodes of files, and the pods of files that are on them. Where there are none, nobody waits for any."""

from collections.abc import Collection, Iterable, Iterator
from typing import Final

import msgspec
import orjson

from webhook.cluster.nodes.node import StoredNode, decode
from webhook.cluster.nodes.occupancy import Occupancy
from webhook.cluster.view import View
from webhook.core.notation.problem import Problem
from webhook.dialects.field import Field
from webhook.laboratory.dry_run.files.objects import Object, label

_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def read_nodes(view: View, found: Iterable[Object], exempt_namespaces: Collection[str]) -> list[Problem]:
    """Take nodes into the view, with its pods on them; return those that could not be read."""
    occupancy, problems = Occupancy(exempt_namespaces), list[Problem]()
    occupancy.take_hyper_nodes(view.policy.hyper_nodes)
    for obj in found:
        stored = read_node(obj, problems)
        if stored is not None:
            occupancy.put_node(stored)
    if occupancy.capacity.nodes:
        view.nodes = occupancy
        for namespace in view.namespaces:
            for pod in view.fences.pods(namespace):
                occupancy.put_pod(pod)
    return problems


def read_node(obj: Object, problems: list[Problem]) -> StoredNode | None:
    """Return a Node that has a name; None for one that the API server would refuse, with its problems noted. As there,
    what is not stated as allocatable is its capacity.
    """
    wrong: list[Problem] = []
    _check(Field(obj, "", wrong))
    if not wrong:
        status = obj.get("status") or {}
        allocatable = status.get("allocatable") or status.get("capacity")
        whole = {
            **obj,
            "metadata": {"uid": obj["metadata"]["name"]} | obj["metadata"],
            "status": {**status, "allocatable": allocatable},
        }
        try:
            return decode(orjson.dumps(_without_nulls(whole)))
        except (msgspec.MsgspecError, ValueError) as error:
            fix = "give it as `kubectl get node -o yaml` prints it"
            wrong.append(Problem("", "", f"is not a Node: {error}", fix))
    problems += [problem.within(f"{label(obj)}#") for problem in wrong]
    return None


def _check(at: Field) -> None:
    for value in at["metadata"]["labels"].mapping().values():
        _text(value)
    at["spec"].mapping()
    at["spec"]["unschedulable"].boolean(default=False)
    for taint in _objects(at["spec"]["taints"]):
        taint["key"].label_key()
        taint["value"].text()
        if taint["effect"].value not in _EFFECTS:
            taint["effect"].error("is not an effect of a taint", f"write one of {', '.join(_EFFECTS)}")
    at["status"].mapping()
    for amounts in (at["status"]["allocatable"], at["status"]["capacity"]):
        for amount in amounts.mapping().values():
            if not amount.present:
                amount.error("is not a quantity", "write one, or leave it out")
            amount.amount()
    for condition in _objects(at["status"]["conditions"]):
        _text(condition["type"])
        _text(condition["status"])


def _objects(at: Field) -> Iterator[Field]:
    for each in at.items():
        each.mapping()
        if isinstance(each.value, dict):
            yield each


def _text(at: Field) -> None:
    if not at.present:
        at.error("is not text", "write it in quotes")
    at.text()


def _without_nulls(value: object) -> object:
    """Return a document without members that say nothing, as the API server stores it."""
    if isinstance(value, dict):
        return {key: _without_nulls(member) for key, member in value.items() if member is not None}
    return [_without_nulls(each) for each in value] if isinstance(value, list) else value
