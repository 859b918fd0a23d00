"""What a pod asks more than its place in a reservation holds."""

from webhook.cluster.view import View
from webhook.core.ledger.record import ReservedPodSet
from webhook.core.model import amounts, quantity
from webhook.core.model.gang import PodPrice


def excess_over(cost: PodPrice, reserved: ReservedPodSet, view: View, namespace: str) -> str | None:
    """Return how a pod asks more than its place holds, in any resource that a queue or a fence counts."""
    for word, asked, held in (
        ("requests", cost.requests, reserved.price.requests),
        ("limits", cost.limits, reserved.price.limits),
    ):
        over = {name: amount for name, amount in asked.items() if amount > held.get(name, 0)}
        for name in sorted(over):
            # Queues count requests; what a controller adds beside the template (an init container) may have limits.
            queued = word == "requests" and name in reserved.flavors
            if "/" in name or queued or _is_fenced_resource(view, namespace, word, name):
                holds = quantity.render(held.get(name, 0), name)
                return (
                    f"the pod {word} {amounts.render({name: over[name]})}, its place in the reservation holds {holds}"
                )
    return None


def _is_fenced_resource(view: View, namespace: str, word: str, name: str) -> bool:
    keys = (f"{word}.{name}", name) if word == "requests" else (f"{word}.{name}",)
    return any(key in fence.hard for fence in view.fences.fences(namespace) for key in keys)
