"""Refusals of the simulated API server: one exception that carries a ``metav1.Status`` as a real one words it.

Wording and details follow ``k8s.io/apimachinery/pkg/api/errors``: clients match on code and reason, people read the
message, so all three are kept.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from webhook.laboratory.simulated.objects.resources import Resource

Json = dict[str, Any]
"""A decoded JSON object. One that is stored is never changed in place."""


class Refused(Exception):
    """A request that is answered by a ``Status`` of failure."""

    def __init__(self, code: int, reason: str, message: str, details: Json | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details

    @property
    def status(self) -> Json:
        """The ``metav1.Status`` body."""
        body: Json = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.code,
        }
        if self.details is not None:
            body["details"] = self.details
        return body


def _details(resource: "Resource", name: str, **more: Any) -> Json:
    details: Json = {"name": name, "group": resource.group, "kind": resource.plural, **more}
    return {key: value for key, value in details.items() if value}


def not_found(resource: "Resource", name: str) -> Refused:
    """404 for an object that is not stored."""
    return Refused(404, "NotFound", f'{resource.qualified} "{name}" not found', _details(resource, name))


def no_such_path() -> Refused:
    """404 for a path that is not served."""
    return Refused(404, "NotFound", "the server could not find the requested resource", {})


def already_exists(resource: "Resource", name: str, *, going: bool = False) -> Refused:
    """409 for a name that is taken, be it by an object that is being deleted."""
    message = f'{resource.qualified} "{name}" already exists'
    message = f"object is being deleted: {message}" if going else message
    return Refused(409, "AlreadyExists", message, _details(resource, name))


def conflict(resource: "Resource", name: str, why: str = "") -> Refused:
    """409 for a failed resourceVersion or uid precondition of a change."""
    cause = why or "the object has been modified; please apply your changes to the latest version and try again"
    message = f'Operation cannot be fulfilled on {resource.qualified} "{name}": {cause}'
    return Refused(409, "Conflict", message, _details(resource, name))


def delete_conflict(resource: "Resource", name: str, why: str) -> Refused:
    """409 for a failed precondition of a deletion; it names the kind where others name the resource."""
    kind = f"{resource.kind}.{resource.group}" if resource.group else resource.kind
    details = _details(resource, name) | {"kind": resource.kind}
    return Refused(409, "Conflict", f'Operation cannot be fulfilled on {kind} "{name}": {why}', details)


def forbidden(resource: "Resource", name: str, why: str, causes: list[Json] | None = None) -> Refused:
    """403 by an admission rule."""
    message = f'{resource.qualified} "{name}" is forbidden: {why}'
    return Refused(403, "Forbidden", message, _details(resource, name, causes=causes))


def invalid(resource: "Resource", name: str, field: str, why: str, reason: str = "FieldValueInvalid") -> Refused:
    """422 for an object that does not validate."""
    kind = f"{resource.kind}.{resource.group}" if resource.group else resource.kind
    causes = [{"reason": reason, "message": why, "field": field}]
    details = {"name": name, "group": resource.group, "kind": resource.kind, "causes": causes}
    return Refused(
        422, "Invalid", f'{kind} "{name}" is invalid: {field}: {why}', {k: v for k, v in details.items() if v}
    )


def version_required(resource: "Resource", name: str) -> Refused:
    """422 for a PUT of a custom resource that names no resourceVersion."""
    why = "metadata.resourceVersion: Invalid value: 0: must be specified for an update"
    return Refused(422, "Invalid", f'{resource.qualified} "{name}" is invalid: {why}', _details(resource, name))


def kind_missing(resource: "Resource", text: str) -> Refused:
    """400 for a custom resource that does not say what it is."""
    return bad_request(
        f"the object provided is unrecognized (must be of type {resource.kind}): Object 'Kind' is missing in '{text}'"
    )


def bad_request(why: str) -> Refused:
    """400 for a body or query that cannot be read."""
    return Refused(400, "BadRequest", why)


def unprocessable_patch() -> Refused:
    """422 for a JSON patch that does not apply."""
    return Refused(422, "Invalid", "the server rejected our request due to an error in our request", {})


def unsupported_media_type(accepted: str) -> Refused:
    """415 for a body in a format that the verb does not take."""
    message = f"the body of the request was in an unknown format - accepted media types include: {accepted}"
    return Refused(415, "UnsupportedMediaType", message)


def method_not_allowed() -> Refused:
    """405 for a verb that the resource does not have."""
    return Refused(405, "MethodNotAllowed", "the server does not allow this method on the requested resource", {})


def expired(why: str) -> Refused:
    """410 for a list or watch position that is no longer known."""
    return Refused(410, "Expired", why)


def internal(why: str) -> Refused:
    """500."""
    return Refused(500, "InternalError", f"Internal error occurred: {why}", {"causes": [{"message": why}]})


def denied_by_webhook(webhook: str, code: int, reason: str, message: str, details: Json | None) -> Refused:
    """A validating or mutating webhook said no; a code that is no error becomes 400, as a real API server does."""
    text = f'admission webhook "{webhook}" denied the request'
    if message or reason:
        text += f": {message or reason}"
    else:
        text += " without explanation"
    return Refused(code if code >= 400 else 400, reason, text, details)
