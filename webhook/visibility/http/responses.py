"""Answers of the read API: errors are metav1.Status, as every Kubernetes client expects."""

from http import HTTPStatus
from typing import Any

import orjson
from aiohttp import web

from webhook.visibility.http.group import GROUP


def status(
    code: int, message: str, *, resource: str = "", name: str = "", retry_seconds: int | None = None
) -> dict[str, Any]:
    """Return a metav1.Status of failure."""
    document: dict[str, Any] = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": "Expired" if code == HTTPStatus.GONE else HTTPStatus(code).phrase.replace(" ", ""),
        "code": code,
    }
    if resource:
        document["details"] = {"group": GROUP, "kind": resource, **({"name": name} if name else {})}
    if retry_seconds is not None:
        document.setdefault("details", {})["retryAfterSeconds"] = retry_seconds
    return document


def refuse(code: int, message: str, *, resource: str = "", name: str = "") -> web.Response:
    """Return a failure as a response."""
    return reply(status(code, message, resource=resource, name=name), code)


def busy(message: str, resource: str, retry_seconds: int) -> web.Response:
    """Return a refusal that has kubectl and client-go ask again after ``retry_seconds``."""
    answer = reply(status(429, message, resource=resource, retry_seconds=retry_seconds), 429)
    answer.headers["Retry-After"] = str(retry_seconds)
    return answer


def reply(document: Any, code: int = 200, content_type: str = "application/json") -> web.Response:
    """Return a document as a response."""
    return web.Response(status=code, body=orjson.dumps(document), headers={"Content-Type": content_type})
