"""/mutate/pods for pods of gangs: each prefers the nodes on which room is kept for its pod set, and of these the one
of its rank: neighbours in rank stand next to each other.

A preference, not a condition: kube-scheduler follows it where it can, and a pod whose node has gone goes elsewhere. It
follows from the ledger's entry alone, so every replica gives the same answer, as often as it is asked.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from webhook.cluster.view import View
from webhook.core.notation import names
from webhook.jobs.patches.marking import prefer_nodes
from webhook.server.review.answer import ALLOW, Answer, patch
from webhook.server.review.pod_facts import Misshapen, mapping
from webhook.wire.admission_review import ReviewRequest

_NUMBER: Final = re.compile(r"[0-9]{1,8}", re.ASCII)


def placed(request: ReviewRequest, view: View) -> Answer | None:
    """Return the answer for a pod that bears a gang's label at its creation, whoever wrote it; None for any other."""
    pod = request.object
    if pod is None or request.subresource or request.operation != "CREATE" or request.resource != "pods":
        return None
    try:
        labels = mapping(mapping(pod, "metadata", ""), "labels", "metadata.")
    except Misshapen:
        return None
    if names.GANG_LABEL not in labels:
        return None
    nodes = _nodes(request.namespace, labels, view)
    return patch(tuple(prefer_nodes(pod, nodes, _own(nodes, labels)))) if nodes else ALLOW


def _own(places: Mapping[str, int], labels: Mapping[str, Any]) -> str | None:
    """Return the node of a pod's rank: the first node takes the first ranks, and so on. None where it has no rank."""
    rank = _rank(labels, sum(places.values()))
    if rank is None:
        return None
    for node, count in places.items():
        if rank < count:
            return node
        rank -= count
    return None


def _rank(labels: Mapping[str, Any], pods: int) -> int | None:
    index = next((labels[name] for name in names.RANK_LABELS if name in labels), None)
    numbers = [index, labels.get(names.JOBSET_REPLICAS, "1"), labels.get(names.JOBSET_JOB_INDEX, "0")]
    own, jobs, job = (int(each) if isinstance(each, str) and _NUMBER.fullmatch(each) else None for each in numbers)
    if own is None or job is None or not jobs:
        return None
    return job * (pods // jobs) + own


def _nodes(namespace: str, labels: Mapping[str, Any], view: View) -> Mapping[str, int]:
    gang, pod_set = labels.get(names.GANG_LABEL), labels.get(names.POD_SET_LABEL)
    entry = view.ledger.entries.get(gang) if isinstance(gang, str) else None
    if entry is None or entry.namespace != namespace or entry.stopping is not None:
        return {}
    reserved = entry.pod_set(str(pod_set))
    return {} if reserved is None else reserved.places
