"""Both processes put together, for who runs them in one program: the demo, the simulation and tests."""

from webhook.parts.reconciler import ReconcilerParts, reconciler
from webhook.parts.webhook import WebhookParts, webhook

__all__ = ["ReconcilerParts", "WebhookParts", "reconciler", "webhook"]
