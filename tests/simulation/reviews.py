"""Which requests the registrations of a simulated world send, and a webhook that refuses."""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any, Final

import orjson

from tests.simulation.groups import LABEL
from tests.simulation.shapes import STORAGES
from webhook.core.notation import names
from webhook.laboratory.simulated.admission.webhooks import Registration, Rule
from webhook.laboratory.simulated.requests.identity import User
from webhook.laboratory.simulated.requests.selectors import compile_selector

Review = Callable[[str, bytes], Awaitable[bytes]]
"""A webhook: path and body of a review to its answer."""
ACCOUNT: Final = User.service_account("tutti-system", "tutti-reconciler")
EXEMPT: Final = compile_selector(
    {
        "matchExpressions": [
            {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system", "tutti-system"]}
        ]
    }
)
JOB_RESOURCES: Final = frozenset(plural for _, plural in STORAGES.values())


async def refusal(_path: str, body: bytes) -> bytes:
    """Refuse a review."""
    review = orjson.loads(body)
    status = {"code": 403, "message": "not as it is"}
    return orjson.dumps({**review, "response": {"uid": review["request"]["uid"], "allowed": False, "status": status}})


def slow(seed: int, seconds: float) -> Review | None:
    """Return a webhook of somebody else that lets all pass, but takes up to so long; None where that is no time."""
    chance = Random(seed)

    async def review(_path: str, body: bytes) -> bytes:
        await asyncio.sleep(chance.uniform(0, seconds))
        asked = orjson.loads(body)
        return orjson.dumps({**asked, "response": {"uid": asked["request"]["uid"], "allowed": True}})

    return review if seconds else None


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


def registrations(
    review: Review, is_refused: Callable[[Any], bool], slow_on_pods: Review | None = None
) -> tuple[Registration, ...]:
    """Return Tutti's registrations, answered by ``review``, and those of others: one that refuses what it is told to,
    and one that is slow on pods, if there is one.
    """
    every = frozenset({"*"})
    jobs = Rule(frozenset({"CREATE", "UPDATE"}), every, every, JOB_RESOURCES)
    scales = Rule(frozenset({"UPDATE"}), every, every, frozenset(f"{name}/scale" for name in JOB_RESOURCES))
    pods = Rule(frozenset({"CREATE", "UPDATE"}), frozenset({""}), every, frozenset({"pods"}))
    gang = compile_selector({"matchExpressions": [{"key": "tutti.dev/gang", "operator": "Exists"}]})
    fenced = compile_selector({"matchLabels": {"tutti.dev/fenced": "true"}})

    def hook(name: str, path: str, *rules: Rule, **more: Any) -> Registration:
        options = {"namespace_selector": EXEMPT, "configuration": "tutti", "review": review} | more
        return Registration(name, path.startswith("/mutate"), path, rules=rules, **options)

    created = Rule(frozenset({"CREATE"}), frozenset({""}), every, frozenset({"pods"}))
    slow_one = {"review": slow_on_pods, "configuration": "slow"}
    return (
        *((hook("slow", "/slow", created, **slow_one),) if slow_on_pods else ()),
        hook("mutate-jobs", "/mutate/jobs", jobs, conditions=(by_others,)),
        hook("plain-pods", "/mutate/pods", pods, conditions=(joins_pod_group,)),
        hook("placed-pods", "/mutate/pods", pods, object_selector=gang),
        hook("validate-jobs", "/validate/jobs", jobs, scales, conditions=(by_others_or_rehearsed,)),
        hook("gang-pods", "/validate/pods", pods, object_selector=gang),
        Registration(
            "another",
            mutating=False,
            path="/refuse",
            review=refusal,
            rules=(jobs,),
            configuration="another",
            conditions=(is_refused,),
        ),
        hook("loose-pods", "/validate/pods", pods, namespace_selector=fenced),
    )
