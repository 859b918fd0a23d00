"""Reads what may not be there: one object, or every object of a resource page by page."""

from collections.abc import AsyncIterator
from typing import Any, Final

import orjson

from webhook.errors import NotFound
from webhook.kube.api import REQUEST_TIMEOUT_SECONDS, Api

PAGE_SIZE: Final = 500


async def find(api: Api, path: str) -> Any | None:
    """Return an object, None where there is none. Raises ApiError."""
    try:
        return orjson.loads(await api.request("GET", path))
    except NotFound:
        return None


async def every(
    api: Api,
    path: str,
    labels: str = "",
    fields: str = "",
    *,
    page_size: int = PAGE_SIZE,
    timeout_seconds: float = REQUEST_TIMEOUT_SECONDS,
) -> AsyncIterator[dict[str, Any]]:
    """Yield every object that two selectors pick; none where the resource is not served. Raises ApiError."""
    selectors = {"labelSelector": labels, "fieldSelector": fields}
    query = {"limit": str(page_size), **{name: text for name, text in selectors.items() if text}}
    while True:
        try:
            page = orjson.loads(await api.request("GET", path, query=query, timeout_seconds=timeout_seconds))
        except NotFound:
            return
        for item in page["items"]:
            yield item
        query["continue"] = page["metadata"].get("continue") or ""
        if not query["continue"]:
            return
