"""How much more a pod asks than its place in a reservation holds."""

from collections.abc import Mapping
from typing import Any, Final

from webhook.cluster.view import View
from webhook.core.ledger.record import ReservedPodSet
from webhook.core.model.gang import PodPrice
from webhook.core.notation import amounts, quantity
from webhook.jobs.pod_sets.added import BY_CONTROLLER
from webhook.jobs.pricing.injections import containers_of
from webhook.jobs.reading.record import JobRecord
from webhook.untyped import paths
from webhook.untyped.values import mappings

STRANGERS_SHOWN: Final = 3
_RAISED: Final = (
    "; it has the containers of its template and no others: something raised what they ask since it was admitted, such "
    "as a VerticalPodAutoscaler or a LimitRange"
)


def excess_over(
    cost: PodPrice, reserved: ReservedPodSet, view: View, namespace: str, transformed: Mapping[str, frozenset[str]]
) -> str | None:
    """Return how a pod asks more than its place holds, in any resource that a queue or a fence counts.

    ``transformed`` says as what else a queue counts a resource.
    """
    if cost.requests == reserved.price.requests and cost.limits == reserved.price.limits:
        return None
    counted = {*reserved.flavors, *(n for n, made in transformed.items() if not made.isdisjoint(reserved.flavors))}
    for word, asked, held in (
        ("requests", cost.requests, reserved.price.requests),
        ("limits", cost.limits, reserved.price.limits),
    ):
        over = {name: amount for name, amount in asked.items() if amount > held.get(name, 0)}
        for name in sorted(over):
            # Queues count requests; what a controller adds to the template (an init container) may have limits.
            queued = word == "requests" and name in counted
            if "/" in name or queued or _is_fenced_resource(view, namespace, word, name):
                holds = quantity.render(held.get(name, 0), name)
                return (
                    f"the pod {word} {amounts.render({name: over[name]})}, its place in the reservation holds {holds}"
                )
    return None


def added_by_others(pod: Mapping[str, Any], pod_set: str, job: JobRecord | None) -> str:
    """Return why a pod asks more than its template: containers that this has not, or others asking more; empty where
    that is not known.

    Its owner reads that at once in an event of whatever creates the pods; otherwise the gang would only be too late.
    """
    templates = () if job is None else job.templates
    template = next((each for each in templates if each.pod_set == pod_set), None)
    if template is None:
        return ""
    known = {name.removeprefix(BY_CONTROLLER) for name in template.containers}
    strangers = [each for each in containers_of(pod) if each.get("name") not in known]
    # What a kind's controller adds ends before the others start. Without its name nothing tells it from others.
    inits = mappings(pod.get("initContainers"))
    ending = [each for each in inits if each in strangers and each.get("restartPolicy") != "Always"]
    if len(ending) <= template.containers.count(BY_CONTROLLER):
        strangers = [each for each in strangers if each not in ending]
    if not strangers:
        own = not any(name.startswith(BY_CONTROLLER) for name in template.containers)
        return _RAISED if own else ""
    told = ", ".join(_in_words(each) for each in strangers[:STRANGERS_SHOWN])
    return (
        f"; {told} {'is' if len(strangers) == 1 else 'are'} in no template: something adds containers to these pods. "
        "Stop that, or have the administrators name them in addedContainers of the configuration"
    )


def _in_words(container: Mapping[str, Any]) -> str:
    asked = []
    for word in ("requests", "limits"):
        stated = paths.find_mapping(container, ("resources", word))
        if stated:
            asked.append(f"{word} " + ", ".join(f"{value} {name}" for name, value in sorted(stated.items())))
    asks = "; ".join(asked) or "asks nothing"
    return f"container {container.get('name')} ({container.get('image')!s:.80}: {asks:.200})"


def _is_fenced_resource(view: View, namespace: str, word: str, name: str) -> bool:
    keys = (f"{word}.{name}", name) if word == "requests" else (f"{word}.{name}",)
    return any(key in fence.hard for fence in view.fences.fences(namespace) for key in keys)
