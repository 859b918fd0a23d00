"""Why the policy alone keeps a gang, or all of a queue, from starting, whatever is free."""

from collections.abc import Mapping

from webhook.core.model.gang import Gang
from webhook.core.model.policy import Policy, Queue, StopPolicy
from webhook.core.reasons.reasons import Code, Reason


def why_closed(queue: Queue) -> Reason | None:
    """Return why a queue admits nothing, whoever asks; None when it does."""
    if queue.inactive is not None:
        return Reason(Code.SUSPENDED, f"queue {queue.name} is inactive ({queue.inactive_reason}): {queue.inactive}")
    return _why_stopped(f"queue {queue.name}", queue.stop_policy)


def why_ineligible(gang: Gang, policy: Policy, namespaces: Mapping[str, Mapping[str, str]]) -> Reason | None:
    """Return why the policy keeps a gang out of its queue, where it blocks nobody; None when it does not.

    ``namespaces`` are labels by name.
    """
    name = policy.queue_of(gang.namespace, gang.queue)
    queue = None if name is None else policy.queues[name]
    if queue is None:
        return None
    local = None if gang.queue is None else policy.local_queues.get((gang.namespace, gang.queue))
    stopped = None if local is None else _why_stopped(f"LocalQueue {local.namespace}/{local.name}", local.stop_policy)
    if stopped is not None:
        return stopped
    if gang.refusal is not None and gang.refusal.code is Code.PENDING_EVALUATION:
        # Kueue sees a failed admission check before it looks at the namespace.
        return None
    selector = queue.namespace_selector
    if selector is None or not selector.matches(namespaces.get(gang.namespace, {})):
        return Reason(
            Code.MISCONFIGURED,
            f"queue {queue.name} does not select namespace {gang.namespace}",
            help="label the namespace or change the queue's namespaceSelector",
        )
    return None


def _why_stopped(name: str, policy: StopPolicy) -> Reason | None:
    if policy is StopPolicy.NONE:
        return None
    return Reason(
        Code.SUSPENDED, f"{name} is stopped ({policy})", help="it is considered again when the stop policy is lifted"
    )
