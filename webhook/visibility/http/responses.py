"""Answers of the read API: errors are metav1.Status, as every Kubernetes client expects."""

from typing import Any, Final

import orjson
from aiohttp import web

from webhook.visibility.http.group import GROUP

_REASONS: Final = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    406: "NotAcceptable",
    410: "Expired",
    500: "InternalError",
    503: "ServiceUnavailable",
}


def status(code: int, message: str, *, resource: str = "", name: str = "") -> dict[str, Any]:
    """Return a metav1.Status of failure."""
    document: dict[str, Any] = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": _REASONS.get(code, "Unknown"),
        "code": code,
    }
    if resource:
        document["details"] = {"group": GROUP, "kind": resource, **({"name": name} if name else {})}
    return document


def refuse(code: int, message: str, *, resource: str = "", name: str = "") -> web.Response:
    """Return a failure as a response."""
    return reply(status(code, message, resource=resource, name=name), code)


def reply(document: Any, code: int = 200, content_type: str = "application/json") -> web.Response:
    """Return a document as a response."""
    return web.Response(status=code, body=orjson.dumps(document), headers={"Content-Type": content_type})
