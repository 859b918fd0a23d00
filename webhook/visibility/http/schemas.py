"""The schemas of the two resources, for ``kubectl explain`` and for generated clients."""

from typing import Any, Final

Schema = dict[str, Any]


def _text(description: str) -> Schema:
    return {"type": "string", "description": description}


def _number(description: str) -> Schema:
    return {"type": "integer", "format": "int32", "description": description}


def _list(description: str, items: Schema) -> Schema:
    return {"type": "array", "description": description, "items": items}


def _map(description: str) -> Schema:
    return {"type": "object", "description": description, "additionalProperties": {"type": "string"}}


def _object(description: str, **properties: Schema) -> Schema:
    return {"type": "object", "description": description, "properties": properties}


_CONDITION: Final = _object(
    "One fact about the object and since when it holds.",
    type=_text("Name of the fact."),
    status=_text("True or False."),
    reason=_text("One word why."),
    message=_text("A sentence why, with the numbers."),
    lastTransitionTime={"type": "string", "format": "date-time", "description": "Since when the status holds."},
)

_REASON: Final = _object(
    "Why the gang waits: which queue, cohort or ResourceQuota says no, and the numbers.",
    code=_text("Kind of reason, for example WaitingForQuota or ResourceQuotaExceeded."),
    message=_text("What the numbers do not tell."),
    where=_text("The queue, cohort or ResourceQuota that says no."),
    resource=_text("Resource that is short."),
    flavor=_text("Flavor that is short."),
    asked=_text("What the gang asks of it."),
    used=_text("What is in use, reservations included."),
    limit=_text("What there is at most."),
    holders=_list(
        "Who holds most of what is missing.",
        _object("One holder.", gang=_text("namespace/name, or loose pods."), amount=_text("What it holds.")),
    ),
    help=_text("What would have to end or change for the gang to start."),
)

WORKLOAD: Final = {
    "spec": _object(
        "What the gang asks.",
        queueName=_text("Queue that it asks for, as its label says, or as its namespace is mapped to."),
        priority=_number("Higher goes first."),
        active={"type": "boolean", "description": "False while its owner has suspended it."},
        quorum=_number("Pods that must be able to run together; all of them when absent."),
        maximumExecutionTimeSeconds=_number("How long it may run, over all its starts; it is held after that."),
        podSets=_list(
            "Groups of identical pods.",
            _object(
                "One group.",
                name=_text("Name of the pod set."),
                count=_number("Pods when whole."),
                minCount=_number("Fewest pods worth starting."),
                requests=_map("What one pod asks, as the API server computes it."),
            ),
        ),
    ),
    "status": _object(
        "Where the gang stands.",
        conditions=_list("QuotaReserved, Admitted, PodsReady, Evicted, Finished, with Kueue's reasons.", _CONDITION),
        admission=_object(
            "What it holds.",
            clusterQueue=_text("Queue that its quota is taken from."),
            podSetAssignments=_list(
                "What each pod set holds.",
                _object(
                    "One pod set.",
                    name=_text("Name of the pod set."),
                    flavors=_map("Resource to flavor."),
                    resourceUsage=_map("What all of its pods hold together."),
                    count=_number("Pods that may exist."),
                ),
            ),
        ),
        requeueState=_object(
            "Back-off after it did not start in time.",
            count=_number("Failed starts."),
            requeueAt={"type": "string", "format": "date-time", "description": "When it is considered again."},
        ),
        reclaimablePods=_list(
            "Pods that have ended and are not charged any more.",
            _object("One pod set.", name=_text("Name of the pod set."), count=_number("Pods.")),
        ),
        accumulatedPastExecutionTimeSeconds=_number("How long it ran in earlier starts."),
        pods=_object(
            "How many pods there are.", wanted=_number("Pods it starts with."), present=_number("Pods that exist.")
        ),
        position=_number("Gangs of its queue that are ahead of it."),
        reason=_REASON,
    ),
}

QUEUE: Final = {
    "spec": _object(
        "What the policy says.",
        dialect=_text("Who wrote it: kueue, elastic-quota-tree or volcano."),
        queueingStrategy=_text("How gangs may pass the head: StrictFIFO, BestEffortFIFO or Backfill."),
        parent=_text("Cohort above."),
        clusterQueue=_text("Of a LocalQueue: the queue behind it."),
        weight=_text("By fair sharing: how large its due share is."),
        quota=_list(
            "Limits, by flavor and resource.",
            _object(
                "One limit.",
                flavor=_text("Flavor."),
                resource=_text("Resource."),
                nominal=_text("What the queue, or all below the cohort together, own."),
                borrowingLimit=_text("Most taken above that; no bound when absent."),
                lendingLimit=_text("Most lent out of it; everything when absent."),
            ),
        ),
    ),
    "status": _object(
        "What happens in it.",
        pending=_number("Gangs that wait for quota."),
        admitted=_number("Gangs that run."),
        reserving=_number("Gangs that hold quota, those being stopped or waiting for a member included."),
        awaitingMember=_number("In a hub: gangs that hold quota, and that no member of the fleet has taken yet."),
        usage=_map("What they hold."),
        nominal=_map("What the queue owns, over all flavors."),
        limit=_map("Most that it may hold, all others idle."),
        available=_map("What it could take now without stopping any gang."),
        borrowed=_map("What it holds above what it owns."),
        borrowedFrom=_list(
            "Whose quota that is: the queues and cohorts below the same parent that leave quota idle, by how much they "
            "leave; the parent, for quota of its own and for what it borrows itself.",
            _object("One lender.", name=_text("Queue or cohort."), amounts=_map("What it lends to this one.")),
        ),
        lent=_map("What others hold of what it owns."),
        weightedShare=_number("By fair sharing: what it borrows, in thousandths of what there is, by its weight."),
        queueUsage=_map("Of a LocalQueue: what all gangs of the queue behind it hold."),
        conditions=_list("Active, with Kueue's reasons.", _CONDITION),
    ),
}
DESCRIPTIONS: Final = {
    "Workload": "Workload is one gang: a job whose pods start together or not at all. It is read from memory; nothing "
    "of it is stored, and it cannot be written.",
    "Queue": "Queue is a place where gangs wait and the quota they are admitted by: a quota of an ElasticQuotaTree, a "
    "ClusterQueue, a cohort, a LocalQueue or a Volcano queue. It is read from memory and cannot be written.",
}
SCHEMAS: Final = {"Workload": WORKLOAD, "Queue": QUEUE}
