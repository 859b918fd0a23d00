"""AdmissionReview in and out, ``admission.k8s.io/v1`` (and v1beta1 refused), as kube-apiserver's dispatcher sends it.

Decoding is strict about what is read and leaves the two objects raw until somebody asks: most reviews are answered from
kind, operation and user alone. Objects are read as deep as those that watches bring (``nesting``). Three outcomes: a
request; ``FieldError`` when a uid can be read but a field is of the wrong type (answered inside the review);
``RequestError`` when there is no review to answer (an HTTP error).

Encoding follows ``VerifyAdmissionResponse``: uid echoed, ``patch`` only together with ``patchType``, a code of at least
400 with every denial, warnings without control characters and short enough to survive the Warning header.
"""

from binascii import b2a_base64
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
import orjson

from webhook.errors import RequestError
from webhook.wire.nesting import LEVELS_MAX, LONG_BYTES, WRAPPING_LEVELS, fits, shallow, too_few_brackets

API_VERSION: Final = "admission.k8s.io/v1"
MESSAGE_CHARS_MAX: Final = 1024
"""Longest message of a denial."""
WARNING_CHARS_MAX: Final = 256
"""Longest single warning; the API server cuts each to this once all together exceed 4,096 characters."""
WARNINGS_MAX: Final = 15
"""15 x 256 stays below the 4,096 characters at which the API server starts to cut."""
BODY_BYTES_MAX: Final = 7 * 2**20
"""A legal review carries object and oldObject, each up to 3 MiB."""

_SPEC: Final = b',"spec":{'
_PREFIX: Final = b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":'


class FieldError(ValueError):
    """The review's uid is known, but a field is not what the API server sends. The message names the field."""

    def __init__(self, uid: str, message: str, code: int = 400) -> None:
        super().__init__(message)
        self.uid = uid
        self.code = code


class _GroupVersionKind(msgspec.Struct, gc=False):
    group: str | None = ""
    version: str | None = ""
    kind: str | None = ""


class _GroupVersionResource(msgspec.Struct, gc=False):
    group: str | None = ""
    version: str | None = ""
    resource: str | None = ""


class _UserInfo(msgspec.Struct, gc=False):
    username: str | None = ""
    groups: tuple[str, ...] | None = ()


class _Options(msgspec.Struct, gc=False):
    orphanDependents: bool | None = False  # noqa: N815 - the name on the wire
    propagationPolicy: str | None = ""  # noqa: N815 - the name on the wire


class _Request(msgspec.Struct, gc=False):
    uid: str
    kind: _GroupVersionKind | None = None
    resource: _GroupVersionResource | None = None
    subResource: str | None = ""  # noqa: N815 - the name on the wire
    name: str | None = ""
    namespace: str | None = ""
    operation: str | None = ""
    userInfo: _UserInfo | None = None  # noqa: N815 - the name on the wire
    object: msgspec.Raw = msgspec.Raw(b"null")
    oldObject: msgspec.Raw = msgspec.Raw(b"null")  # noqa: N815 - the name on the wire
    dryRun: bool | None = False  # noqa: N815 - the name on the wire
    options: _Options | None = None


class _Review(msgspec.Struct, gc=False):
    apiVersion: str  # noqa: N815 - the name on the wire
    kind: str
    request: _Request


class _UidOnly(msgspec.Struct, gc=False):
    uid: str


class _Envelope(msgspec.Struct, gc=False):
    apiVersion: str  # noqa: N815 - the name on the wire
    kind: str
    request: _UidOnly


_review_decoder: Final = msgspec.json.Decoder(_Review)
_envelope_decoder: Final = msgspec.json.Decoder(_Envelope)


class ReviewRequest:
    """One admission request; its objects are decoded when first asked for."""

    __slots__ = (
        "_body",
        "_object",
        "_old_object",
        "_options",
        "_raw_object",
        "_raw_old_object",
        "_shallow",
        "dry_run",
        "group",
        "groups",
        "kind",
        "name",
        "namespace",
        "operation",
        "resource",
        "subresource",
        "uid",
        "username",
    )

    def __init__(self, wire: _Request, body: bytes, *, cut: bool) -> None:
        """``body`` is the whole review; ``cut``: what is nested too deeply was cut away from it before."""
        kind, resource = wire.kind or _GroupVersionKind(), wire.resource or _GroupVersionResource()
        self.uid = wire.uid
        self.kind = f"{kind.kind or ''}.{kind.group or ''}"
        """``Kind.group``, as registry keys are written; a kind of the core group ends in a dot."""
        self.group = resource.group or ""
        self.resource = resource.resource or ""
        self.subresource = wire.subResource or ""
        self.name = wire.name or ""
        self.namespace = wire.namespace or ""
        self.operation = wire.operation or ""
        self.username = (wire.userInfo.username if wire.userInfo else "") or ""
        self.groups = (wire.userInfo.groups if wire.userInfo else ()) or ()
        self.dry_run = bool(wire.dryRun)
        self._options = wire.options
        self._raw_object, self._raw_old_object = wire.object, wire.oldObject
        self._body, self._shallow = body, cut
        self._object: Mapping[str, Any] | None = None
        self._old_object: Mapping[str, Any] | None = None

    @property
    def lengths_bytes(self) -> tuple[int, int]:
        """Of object and oldObject, as the API server sent them."""
        return len(self._raw_object), len(self._raw_old_object)

    @property
    def orphaning(self) -> bool | None:
        """Whether a deletion leaves behind what the object owns; None where it says nothing of it."""
        options = self._options
        if options is None or not (options.orphanDependents or options.propagationPolicy):
            return None
        return bool(options.orphanDependents) or options.propagationPolicy == "Orphan"

    @property
    def object(self) -> Mapping[str, Any] | None:
        """The object as it would be stored; None when there is none (DELETE). Raises FieldError, RequestError."""
        if self._object is None and (self.operation != "UPDATE" or not self._read_both()):
            self._object = self._decoded(self._raw_object, "object")
        return self._object

    @property
    def old_object(self) -> Mapping[str, Any] | None:
        """The object as it is stored; None on CREATE. Raises FieldError, RequestError."""
        if self._old_object is None:
            self._old_object = self._decoded(self._raw_old_object, "oldObject")
        return self._old_object

    @property
    def too_deep(self) -> bool:
        """Whether the object is nested deeper than is read: what lies below is null in ``object``."""
        return not fits(bytes(self._raw_object))

    def _read_both(self) -> bool:
        """Read both objects of a change if they end alike, and return whether they do.

        Those of a long review are read in turns of their own.
        """
        if len(self._body) > LONG_BYTES or not self._is_shallow():
            return False
        both = _with_one_spec(bytes(self._raw_object), bytes(self._raw_old_object))
        if both is not None:
            self._object, self._old_object = both
        return both is not None

    def _is_shallow(self) -> bool:
        # A look at the whole body mostly suffices for both objects.
        self._shallow = self._shallow or too_few_brackets(self._body, LEVELS_MAX)
        return self._shallow

    def _decoded(self, raw: msgspec.Raw, field: str) -> Mapping[str, Any] | None:
        try:
            value = orjson.loads(memoryview(raw) if self._is_shallow() else shallow(bytes(raw)))
        except orjson.JSONDecodeError as error:
            raise RequestError(400, f"request.{field} is not JSON: {error}") from None
        if value is not None and not isinstance(value, dict):
            raise FieldError(self.uid, f"request.{field} must be an object, not {type(value).__name__}", 422)
        return value


def _with_one_spec(raw: bytes, old: bytes) -> tuple[Mapping[str, Any], Mapping[str, Any]] | None:
    """Return two objects whose texts are the same from the spec on, which is one value then; None for any others.

    Controllers and collectors leave the spec as it is, time and again, and it is most of an object. Where what is found
    is no field of the objects themselves, one of the parts is no JSON.
    """
    (head, _, rest), (old_head, found, old_rest) = raw.partition(_SPEC), old.partition(_SPEC)
    if not found or rest != old_rest:
        return None
    try:
        both = orjson.loads(b"{" + _SPEC[1:] + rest)
        return orjson.loads(head + b"}") | both, orjson.loads(old_head + b"}") | both
    except orjson.JSONDecodeError:
        return None


def decode(body: bytes, *, cut: bool = False) -> ReviewRequest:
    """Return the request of an AdmissionReview. ``cut``: what lies below ``LEVELS_MAX`` of its objects, or a few levels
    more, is cut away already, and is not looked for again.

    Raises RequestError (HTTP 400) when it is no v1 review with a uid, FieldError when only a field is wrong.
    """
    try:
        try:
            review = _review_decoder.decode(body)
        except RecursionError:
            body = shallow(body, LEVELS_MAX + WRAPPING_LEVELS)
            review = _review_decoder.decode(body)
    except msgspec.ValidationError as error:
        raise _field_error(body, str(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RequestError(400, f"the body is not JSON: {error}") from None
    _check_type(review.apiVersion, review.kind)
    if not review.request.uid:
        raise RequestError(400, "request.uid is empty")
    return ReviewRequest(review.request, body, cut=cut)


def _field_error(body: bytes, message: str) -> Exception:
    try:
        envelope = _envelope_decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return RequestError(400, f"not an AdmissionReview: {message}")
    _check_type(envelope.apiVersion, envelope.kind)
    if not envelope.request.uid:
        return RequestError(400, "request.uid is empty")
    return FieldError(envelope.request.uid, message)


def _check_type(api_version: str, kind: str) -> None:
    if api_version != API_VERSION or kind != "AdmissionReview":
        raise RequestError(400, f"expected {API_VERSION} AdmissionReview; register admissionReviewVersions: [v1]")


def encode_allowed(uid: str, warnings: Sequence[str] = (), patch: Sequence[Mapping[str, Any]] = ()) -> bytes:
    """Return the review that lets the request pass, with ``warnings`` and a JSON patch where there are any."""
    patched = warned = b""
    if patch:
        patched = b',"patchType":"JSONPatch","patch":"%b"' % b2a_base64(orjson.dumps(patch), newline=False)
    if warnings:
        warned = b',"warnings":' + orjson.dumps(_warnings(warnings))
    return b'%b%b,"allowed":true%b%b}}' % (_PREFIX, orjson.dumps(uid), patched, warned)


def encode_denied(uid: str, code: int, message: str, warnings: Sequence[str] = ()) -> bytes:
    """Return the review that refuses the request with ``code`` (400 or more) and a message for a person."""
    assert code >= 400, "the API server turns a smaller code into 400 and hides the mistake"
    response: dict[str, Any] = {
        "allowed": False,
        "status": {"code": code, "message": printable(message, MESSAGE_CHARS_MAX)},
    }
    if warnings:
        response["warnings"] = _warnings(warnings)
    return _PREFIX + orjson.dumps(uid) + b"," + orjson.dumps(response)[1:] + b"}"


def _warnings(warnings: Sequence[str]) -> list[str]:
    return [text for warning in warnings[:WARNINGS_MAX] if (text := printable(warning, WARNING_CHARS_MAX))]


def printable(text: str, chars_max: int) -> str:
    """Return ``text`` without control or direction-changing characters and at most ``chars_max`` long."""
    text = text[: chars_max + 1]
    cleaned = text if text.isprintable() else "".join(char if char.isprintable() else " " for char in text)
    return cleaned if len(cleaned) <= chars_max else cleaned[: chars_max - 1] + "…"
