"""Admission: calls the registered webhooks as kube-apiserver's dispatcher does.

Mutating webhooks run one after the other in order of their configuration's name, each on what the one before left;
those marked for reinvocation run once more when a later one changed the object. Validating webhooks all see the final
object. Each call is a fresh ``AdmissionReview`` v1 with its own uid. What a webhook may answer, and what becomes of a
wrong answer, follows ``k8s.io/apiserver/pkg/admission/plugin/webhook``.

CEL is not evaluated: a match condition is a Python predicate over the ``request`` part of the review.
"""

import asyncio
import base64
import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, Final

import orjson

from webhook.laboratory.simulated.objects.resources import Resource
from webhook.laboratory.simulated.requests import patches
from webhook.laboratory.simulated.requests.identity import Call
from webhook.laboratory.simulated.requests.refusals import Json, Refused, denied_by_webhook, internal
from webhook.laboratory.simulated.requests.selectors import Predicate, compile_selector, everything

Reviewer = Callable[[str, bytes], Awaitable[bytes]]
"""Answers one review: the path of the webhook and the AdmissionReview in, the AdmissionReview out."""
Condition = Callable[[Json], bool]
"""A match condition over the review's ``request``."""

_OPTIONS: Final = {"CREATE": "CreateOptions", "UPDATE": "UpdateOptions", "DELETE": "DeleteOptions"}
_NEVER_REVIEWED: Final = "admissionregistration.k8s.io"


@dataclass(frozen=True, slots=True)
class Rule:
    """Which requests a webhook is about."""

    operations: frozenset[str]
    groups: frozenset[str]
    versions: frozenset[str]
    resources: frozenset[str]
    """``pods``, ``pods/status``, ``*``, ``*/scale``, ``pods/*`` or ``*/*``."""

    def matches(self, operation: str, resource: Resource, subresource: str) -> bool:
        """Return whether the request falls under the rule."""
        if not ({operation, "*"} & self.operations and {resource.group, "*"} & self.groups):
            return False
        if not {resource.version, "*"} & self.versions:
            return False
        if not subresource:
            return bool({resource.plural, "*", "*/*"} & self.resources)
        names = {f"{resource.plural}/{subresource}", f"*/{subresource}", f"{resource.plural}/*", "*/*"}
        return bool(names & self.resources)


@dataclass(frozen=True, slots=True, eq=False)
class Registration:
    """One webhook of a configuration."""

    name: str
    mutating: bool
    path: str
    review: Reviewer
    rules: tuple[Rule, ...]
    configuration: str = ""
    """Name of the configuration it is part of; orders the calls."""
    namespace_selector: Predicate = everything
    object_selector: Predicate = everything
    fail_open: bool = False
    """failurePolicy Ignore."""
    timeout_seconds: float = 10.0
    reinvoked: bool = False
    conditions: tuple[Condition, ...] = ()


def registrations(
    configuration: Mapping[str, Any], review: Reviewer, conditions: Mapping[str, Condition] | None = None
) -> list[Registration]:
    """Return the webhooks of a Mutating- or ValidatingWebhookConfiguration object.

    ``conditions`` gives the meaning of matchConditions by their name; one that is missing holds always.
    """
    known = conditions or {}
    mutating = configuration["kind"] == "MutatingWebhookConfiguration"
    found = []
    for hook in configuration.get("webhooks") or ():
        client = hook.get("clientConfig") or {}
        path = (client.get("service") or {}).get("path") or "/" + client.get("url", "").partition("://")[2].partition(
            "/"
        )[2]
        found.append(
            Registration(
                name=hook["name"],
                mutating=mutating,
                path=path,
                review=review,
                rules=tuple(_rule(rule) for rule in hook.get("rules") or ()),
                configuration=configuration["metadata"]["name"],
                namespace_selector=compile_selector(hook.get("namespaceSelector")),
                object_selector=compile_selector(hook.get("objectSelector")),
                fail_open=hook.get("failurePolicy", "Fail") == "Ignore",
                timeout_seconds=float(hook.get("timeoutSeconds", 10)),
                reinvoked=hook.get("reinvocationPolicy") == "IfNeeded",
                conditions=tuple(known[c["name"]] for c in hook.get("matchConditions") or () if c["name"] in known),
            )
        )
    return found


def _rule(rule: Mapping[str, Any]) -> Rule:
    return Rule(
        frozenset(rule["operations"]),
        frozenset(rule["apiGroups"]),
        frozenset(rule["apiVersions"]),
        frozenset(rule["resources"]),
    )


@dataclass(slots=True)
class Attributes:
    """One write as admission sees it. ``object`` is replaced by what mutating webhooks make of it."""

    operation: str
    resource: Resource
    subresource: str
    namespace: str
    name: str
    object: Json | None
    old: Json | None
    call: Call
    kind: tuple[str, str, str] | None = None
    """(group, version, kind) of the body where it is not the resource's own: Scale, Binding."""

    def request(self, uid: str) -> Json:
        """Return the ``request`` part of a review."""
        resource = self.resource
        group, version, kind = self.kind or (resource.group, resource.version, resource.kind)
        gvk = {"group": group, "version": version, "kind": kind}
        gvr = {"group": resource.group, "version": resource.version, "resource": resource.plural}
        options = {"kind": _OPTIONS[self.operation], "apiVersion": "meta.k8s.io/v1"}
        if self.call.dry_run:
            options |= {"dryRun": ["All"]}  # type: ignore[dict-item]
        body: Json = {"uid": uid, "kind": gvk, "resource": gvr}
        if self.subresource:
            body["subResource"] = self.subresource
        body |= {"requestKind": gvk, "requestResource": gvr}
        if self.subresource:
            body["requestSubResource"] = self.subresource
        if self.name:
            body["name"] = self.name
        if self.namespace:
            body["namespace"] = self.namespace
        body |= {"operation": self.operation, "userInfo": self.call.user.info}
        body |= {"object": self.object, "oldObject": self.old, "dryRun": self.call.dry_run, "options": options}
        return body


class Admission:
    """The registered webhooks of one simulated API server."""

    def __init__(self, rng: Random, namespace_labels: Callable[[str], Mapping[str, str]]) -> None:
        self._rng = rng
        self._namespace_labels = namespace_labels
        self._registered: list[Registration] = []
        self._routes: dict[tuple[str, Resource, str, bool], list[Registration]] = {}

    def register(self, *webhooks: Registration) -> None:
        """Add webhooks; mutating ones are called in order of their configuration's name."""
        self._registered = sorted((*self._registered, *webhooks), key=lambda hook: hook.configuration)
        self._routes.clear()

    def unregister(self, configuration: str, mutating: bool) -> None:
        """Remove the webhooks of one configuration."""
        self._registered = [
            hook for hook in self._registered if (hook.configuration, hook.mutating) != (configuration, mutating)
        ]
        self._routes.clear()

    def wanted(self, operation: str, resource: Resource, subresource: str) -> bool:
        """Return whether any webhook may want to see such a request."""
        return bool(
            self._route(operation, resource, subresource, True) or self._route(operation, resource, subresource, False)
        )

    async def mutate(self, attributes: Attributes) -> None:
        """Run the mutating webhooks. Raises Refused when one denies or, failing closed, cannot be called."""
        changed_after: dict[Registration, bool] = {}
        for hook in self._selected(attributes, True):
            if await self._mutate_once(hook, attributes):
                changed_after = dict.fromkeys(changed_after, True)
            changed_after[hook] = False
        for hook, changed in changed_after.items():
            if changed and hook.reinvoked:
                await self._mutate_once(hook, attributes)

    async def validate(self, attributes: Attributes) -> None:
        """Run the validating webhooks, all at once. Raises Refused by the first one that denies."""
        hooks = self._selected(attributes, False)
        if len(hooks) == 1:
            await self._call(hooks[0], attributes)
        elif hooks:
            outcomes = await asyncio.gather(*(self._call(hook, attributes) for hook in hooks), return_exceptions=True)
            for outcome in outcomes:
                if isinstance(outcome, BaseException):
                    raise outcome

    def _route(self, operation: str, resource: Resource, subresource: str, mutating: bool) -> list[Registration]:
        key = (operation, resource, subresource, mutating)
        route = self._routes.get(key)
        if route is None:
            route = self._routes[key] = [
                hook
                for hook in self._registered
                if hook.mutating is mutating
                and resource.group != _NEVER_REVIEWED
                and any(rule.matches(operation, resource, subresource) for rule in hook.rules)
            ]
        return route

    def _selected(self, attributes: Attributes, mutating: bool) -> list[Registration]:
        route = self._route(attributes.operation, attributes.resource, attributes.subresource, mutating)
        return [hook for hook in route if self._selects(hook, attributes)]

    def _selects(self, hook: Registration, attributes: Attributes) -> bool:
        if hook.namespace_selector is not everything:
            if attributes.resource.qualified == "namespaces":
                labels: Mapping[str, str] = _labels(attributes.object or attributes.old)
                if not hook.namespace_selector(labels):
                    return False
            elif attributes.namespace and not hook.namespace_selector(self._namespace_labels(attributes.namespace)):
                return False
        if hook.object_selector is not everything:
            objects = (attributes.object, attributes.old)
            if not any(item is not None and hook.object_selector(_labels(item)) for item in objects):
                return False
        return not hook.conditions or all(condition(attributes.request("")) for condition in hook.conditions)

    async def _mutate_once(self, hook: Registration, attributes: Attributes) -> bool:
        response = await self._call(hook, attributes)
        if response is None or not response.get("patch"):
            return False
        before = orjson.dumps(attributes.object)
        try:
            operations = orjson.loads(base64.b64decode(response["patch"], validate=True))
            patched = patches.json_patch(orjson.loads(before), operations)
        except (ValueError, Refused) as error:
            # Whatever the failure policy says: a patch that does not apply fails the user's request.
            raise internal(str(error)) from error
        attributes.object = patched
        return orjson.dumps(patched) != before

    async def _call(self, hook: Registration, attributes: Attributes) -> Json | None:
        """Return the response of one webhook that allows, None when it failed open."""
        uid = str(uuid.UUID(int=self._rng.getrandbits(128), version=4))
        review = {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": attributes.request(uid)}
        try:
            async with asyncio.timeout(hook.timeout_seconds):
                answer = await hook.review(hook.path, orjson.dumps(review))
            response = _verified(answer, uid, hook.mutating)
        except Exception as error:
            if hook.fail_open:
                return None
            cause = (
                "context deadline exceeded" if isinstance(error, TimeoutError) else str(error) or type(error).__name__
            )
            raise internal(f'failed calling webhook "{hook.name}": failed to call webhook: {cause}') from error
        attributes.call.warnings.extend(filter(None, response.get("warnings") or ()))
        if response.get("allowed"):
            return response
        status = response.get("status") or {}
        raise denied_by_webhook(
            hook.name,
            int(status.get("code") or 0),
            status.get("reason", ""),
            status.get("message", ""),
            status.get("details"),
        )


def _labels(item: Json | None) -> dict[str, str]:
    return {} if item is None else item.get("metadata", {}).get("labels") or {}


def _verified(answer: bytes, uid: str, mutating: bool) -> Json:
    """Return the ``response`` of a review. Raises ValueError for one that the API server would not accept."""
    review = orjson.loads(answer)
    response = review.get("response") if isinstance(review, dict) else None
    if not isinstance(response, dict):
        raise ValueError("webhook response was absent")
    if (review.get("apiVersion"), review.get("kind")) != ("admission.k8s.io/v1", "AdmissionReview"):
        raise ValueError("received invalid webhook response: expected admission.k8s.io/v1, Kind=AdmissionReview")
    if response.get("uid") != uid:
        raise ValueError(f'expected response.uid="{uid}", got "{response.get("uid")}"')
    if bool(response.get("patch")) is not bool(response.get("patchType")):
        raise ValueError("webhook returned response.patch without response.patchType or the reverse")
    if response.get("patch") and not mutating:
        raise ValueError("validating webhook may not return response.patch")
    if response.get("patchType") not in (None, "", "JSONPatch"):
        raise ValueError(f'webhook returned invalid response.patchType of "{response["patchType"]}"')
    return response
