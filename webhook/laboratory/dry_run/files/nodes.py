"""Nodes of files, and the pods of files that are on them. Where there are none, nobody waits for any."""

from collections.abc import Collection, Iterable

import msgspec
import orjson

from webhook.cluster.nodes.node import decode
from webhook.cluster.nodes.occupancy import Occupancy
from webhook.cluster.view import View
from webhook.core.notation.problem import Problem
from webhook.core.notation.quantity import QuantityError
from webhook.laboratory.dry_run.files.objects import Object, label


def read_nodes(view: View, found: Iterable[Object], exempt_namespaces: Collection[str]) -> list[Problem]:
    """Take nodes into the view, with its pods on them; return those that could not be read."""
    occupancy, problems = Occupancy(exempt_namespaces), list[Problem]()
    occupancy.take_hyper_nodes(view.policy.hyper_nodes)
    for obj in found:
        metadata = {"uid": obj["metadata"]["name"]} | obj["metadata"]
        try:
            occupancy.put_node(decode(orjson.dumps({**obj, "metadata": metadata})))
        except (msgspec.MsgspecError, QuantityError, ValueError) as error:
            fix = "give it as `kubectl get node -o yaml` prints it"
            problems.append(Problem(label(obj), "", f"is not a Node: {error}", fix))
    if occupancy.capacity.nodes:
        view.nodes = occupancy
        for namespace in view.namespaces:
            for pod in view.fences.pods(namespace):
                occupancy.put_pod(pod)
    return problems
