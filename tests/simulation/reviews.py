"""Which requests the registrations of a simulated world send, and a webhook that refuses."""

from typing import Any, Final

import orjson

from tests.simulation.groups import LABEL
from webhook.core.model import names
from webhook.laboratory.simulated.requests.identity import User

ACCOUNT: Final = User.service_account("tutti-system", "tutti-reconciler")


async def refusal(_path: str, body: bytes) -> bytes:
    """Refuse a review."""
    review = orjson.loads(body)
    status = {"code": 403, "message": "not as it is"}
    return orjson.dumps({**review, "response": {"uid": review["request"]["uid"], "allowed": False, "status": status}})


def by_others(request: Any) -> bool:
    """Return whether it is not the reconciler who asks."""
    return bool(request["userInfo"]["username"] != ACCOUNT.name)


def by_others_or_rehearsed(request: Any) -> bool:
    """Return the same; but the dry runs of the reconciler are sent."""
    return by_others(request) or bool(request["dryRun"])


def joins_pod_group(request: Any) -> bool:
    """Return whether it is a plain pod of a group that is created."""
    labels = (request["object"] or {})["metadata"].get("labels") or {}
    joins = LABEL in labels or names.KUEUE_POD_GROUP in labels
    return request["operation"] == "CREATE" and joins and "tutti.dev/gang" not in labels
