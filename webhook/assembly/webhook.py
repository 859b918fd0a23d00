"""A webhook replica from its parts."""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass

from webhook.clock import Clock
from webhook.cluster.feeds import Feeds
from webhook.cluster.listener import Listener
from webhook.cluster.view import View, unsynced
from webhook.config import Config, engine_settings, job_kinds
from webhook.core.model.pods import PodRecord
from webhook.core.notation import names
from webhook.core.scheduler.engine import Engine
from webhook.jobs.compute_class import catalog as compute_class_catalog
from webhook.kube.api import Api
from webhook.server.handler import Beside, ReviewHandler
from webhook.server.pods.tally import Tally
from webhook.server.review.settings import ReviewSettings
from webhook.server.sharding.forward import Forwarder, Peers
from webhook.server.sharding.ownership import Ownership


@dataclass(frozen=True, slots=True)
class WebhookParts:
    """One webhook replica of one cluster."""

    view: View
    feeds: Feeds
    handler: ReviewHandler
    forwarder: Forwarder | None

    def problems(self) -> list[str]:
        """Return what it has to read before it may decide."""
        unmet = self.forwarder is not None and not self.forwarder.met
        return [*(["the list of replicas has not been read yet"] if unmet else ()), *unsynced(self.view)]

    async def run(self) -> None:
        """Keep the view and the picture of the peers current until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.feeds.run(), name="feeds")
            if self.forwarder is not None:
                tasks.create_task(self.forwarder.run(), name="peers")


class _WebhookListener(Listener):
    """Keeps what the handler answers from in step with the view.

    That is an engine on the present policy, for the one question the webhook asks it (can this ever fit?), and the
    tally of pods let pass.
    """

    def __init__(self, view: View, clock: Clock) -> None:
        self.engine = Engine()
        self.tally: Tally | None = None
        self._view = view
        self._clock = clock

    def pod_changed(self, old: PodRecord | None, new: PodRecord | None) -> None:
        """A pod that is seen is no longer pending, nor what it was resized to before that."""
        seen = new or old
        if self.tally is not None and seen is not None:
            version = None if new is None else new.resource_version
            self.tally.saw(seen.namespace, seen.uid, seen.created_seconds, version)

    def policy_changed(self) -> None:
        """Take the new policy."""
        self.engine.set_policy(self._view.policy, self._view.namespaces, self._clock.now())

    def namespace_changed(self, name: str) -> None:
        """Namespace selectors decide who may use a queue."""
        self.policy_changed()


def webhook(
    api: Api,
    config: Config,
    *,
    identity: str,
    clock: Clock,
    rng: random.Random,
    peers: Peers | None = None,
    forwarder: Callable[[Ownership, Peers], Forwarder] = Forwarder,
    started_seconds: float = float("-inf"),
    beside: Callable[[], Beside] | None = None,
) -> WebhookParts:
    """Return a webhook replica. ``peers`` names the replicas that share the pod checks; None: it is alone.

    ``started_seconds`` is the monotonic time of a start that the other replicas still have to learn of.
    Raises WrongInput where the configuration's compute classes or job kinds are wrong.
    """
    kinds, view = job_kinds(config), View(hides_neighbours=config.hide_neighbours)
    feeds = Feeds(api, view, config, kinds, rng)
    listener = _WebhookListener(view, clock)
    feeds.listener = listener
    ownership = Ownership(identity, started_seconds=started_seconds, joining=started_seconds > float("-inf"))
    passing_on = None if peers is None else forwarder(ownership, peers)
    handler = ReviewHandler(
        view,
        ReviewSettings(
            transformed=engine_settings(config).transformed,
            network_tiers=config.network_tiers,
            exempt_namespaces=frozenset((*config.exempt_namespaces, names.SYSTEM_NAMESPACE)),
            left_to_kueue=config.left_to_kueue,
        ),
        kinds=kinds,
        context=lambda: feeds.context,
        potential=listener.engine.potential,
        policy_objects=feeds.policy_objects_beside,
        forwarder=passing_on,
        classes=None if config.compute_classes is None else compute_class_catalog.load(config.compute_classes),
        pods_heard_seconds=lambda: feeds.informers["pods"].heard_seconds,
        clock=clock,
        **({} if beside is None else {"beside": beside(), "counting": beside()}),
    )
    listener.tally = handler.tally
    return WebhookParts(view, feeds, handler, passing_on)
