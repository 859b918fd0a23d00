"""What runs outside Tutti: devices that pods of no gang hold, and that no queue is charged for."""

from typing import Any, Final

import orjson

from webhook.commands.show.reading import read_api
from webhook.core.model import amounts, names, quantity
from webhook.core.model.problem import Unreadable
from webhook.errors import ApiError
from webhook.jobs.pricing.pod_requests import price
from webhook.kube.api import Api
from webhook.visibility.documents.workload import JOB_UID_LABEL
from webhook.visibility.http.app import ROOT

PAGE_PODS: Final = 500
PAGES_MAX: Final = 40
_RUNNING: Final = "status.phase!=Succeeded,status.phase!=Failed"


async def outside(api: Api) -> str | None:
    """Return what pods of no gang hold of devices, as a sentence; None where that is nothing, or cannot be seen."""
    try:
        # The pods of a gang that ran before Tutti bear no label of it.
        ours = {gang["metadata"]["labels"][JOB_UID_LABEL] for gang in await read_api(api, f"{ROOT}/workloads")}
    except ApiError:
        return None
    query = {"labelSelector": f"!{names.GANG_LABEL}", "fieldSelector": _RUNNING, "limit": str(PAGE_PODS)}
    held: dict[str, int] = {}
    owners: set[str] = set()
    for _ in range(PAGES_MAX):
        try:
            page = orjson.loads(await api.request("GET", "/api/v1/pods", query=query))
        except ApiError:
            return None
        for pod in page["items"]:
            owner, asked = _holder(pod), _devices(pod)
            if asked and owner not in ours:
                held = amounts.add(held, asked)
                owners.add(owner)
        query["continue"] = page["metadata"].get("continue") or ""
        if not query["continue"]:
            break
    if not held:
        return None
    told = ", ".join(f"{quantity.render(amount, name)} {name}" for name, amount in sorted(held.items()))
    at_least = "at least " if query["continue"] else ""
    return f"outside Tutti: {at_least}{told} in {len(owners)} {'job' if len(owners) == 1 else 'jobs'} of no queue"


def _holder(pod: dict[str, Any]) -> str:
    references = pod["metadata"].get("ownerReferences") or ()
    return str(next((each["uid"] for each in references if each.get("controller")), pod["metadata"]["uid"]))


def _devices(pod: dict[str, Any]) -> dict[str, int]:
    try:
        asked = price(pod["spec"]).requests
    except Unreadable:
        return {}
    return {name: amount for name, amount in asked.items() if "/" in name and amount}
