"""What a hub does again and again, whatever went wrong the last time."""

from collections.abc import Awaitable, Callable

import structlog

from webhook.errors import ApiError
from webhook.fleet.home import AnotherHub
from webhook.fleet.members.member import NoAnswer

log = structlog.get_logger(__name__)


async def attempt(work: Callable[[], Awaitable[None]]) -> None:
    """Do it, and log what goes wrong. Raises AnotherHub."""
    try:
        await work()
    except (ApiError, NoAnswer) as error:
        log.warning("fleet.not_answered", error=str(error))
    except AnotherHub:
        raise
    except Exception:
        # What one member or one job says must not end what all of them need.
        log.exception("fleet.broken")
