"""Notices when our webhook registrations ask for less than those that ship, or for something else.

The API server lets neither a webhook nor an admission policy judge registrations. Whoever may write them, by a stolen
token or by accident, can take a webhook out: jobs then bypass their queues, and nothing fails. Reconcilers watch them
(``registration_watch``), and ``tutti status`` checks them. Nobody writes them back: that right would be worth more to a
thief than what it repairs.
"""

import re
from base64 import b64decode
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

from webhook.core.notation.counted import counted
from webhook.jobs.kinds.kind import JobKind
from webhook.jobs.kinds.registry import KINDS
from webhook.kube.api import Api
from webhook.kube.finding import find

PACKAGED: Final = Path(__file__).parent / "packaged" / "registrations.yaml"
"""Where the build puts a copy of what is in a checkout; see pyproject.toml."""
CHECKOUT: Final = Path(__file__).parents[3] / "manifests" / "base" / "registrations.yaml"
NAME: Final = "tutti"
TOLD_MAX: Final = 5
"""Faults that an event names."""
_PLURALS: Final = {
    "MutatingWebhookConfiguration": "mutatingwebhookconfigurations",
    "ValidatingWebhookConfiguration": "validatingwebhookconfigurations",
}
_OURS: Final = ".tutti.dev"
_PEM: Final = re.compile(rb"-----BEGIN CERTIFICATE-----(.*?)-----END CERTIFICATE-----", re.DOTALL)
Document = Mapping[str, Any]


@cache
def shipped() -> tuple[dict[str, Any], ...]:
    """Return the webhook configurations that the manifests install. Takes a tenth of a second, once."""
    path = CHECKOUT if CHECKOUT.exists() else PACKAGED
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return tuple(document for document in yaml.load_all(path.read_text(), loader) if document)


def own_groups(kinds: Mapping[str, JobKind]) -> frozenset[str]:
    """Return the API groups of kinds that do not ship as they are: the conditions of their webhooks are others."""
    return frozenset(
        kind.group
        for key, kind in kinds.items()
        if key not in KINDS or _conditions_of(kind) != _conditions_of(KINDS[key])
    )


def _conditions_of(kind: JobKind) -> object:
    """Return what of a kind the conditions are made from."""
    return kind.pod_sets, kind.suspend, kind.managed_by


def path_of(kind: str) -> str:
    """Return where configurations of a kind are."""
    return f"/apis/admissionregistration.k8s.io/v1/{_PLURALS[kind]}"


async def look(api: Api, own: Collection[str] = (), exempt: Collection[str] = ()) -> list[str]:
    """Return what is wrong with the cluster's registrations. Raises ApiError.

    ``own``: groups of kinds that were added by configuration; ``exempt``: namespaces that may be left out.
    """
    found = []
    for document in shipped():
        stored = await find(api, f"{path_of(document['kind'])}/{NAME}")
        found += lacks(document, stored or {}, own, exempt)
    return found


def lacks(expected: Document, stored: Document, own: Collection[str], exempt: Collection[str]) -> list[str]:
    """Return what is wrong with one stored configuration, which is empty where there is none."""
    kind = expected["kind"]
    if not stored.get("webhooks"):
        return [f"there is no {kind} {NAME}, or it is empty"]
    return [f"{kind} {NAME}: {fault}" for fault in faults(expected, stored, own, exempt)]


def faults(expected: Document, stored: Document, own: Collection[str], exempt: Collection[str]) -> list[str]:
    """Return where a stored configuration asks less than expected, or of somebody else."""
    hooks = {hook.get("name", ""): hook for hook in stored.get("webhooks") or ()}
    wanted = {hook["name"]: hook for hook in expected["webhooks"]}
    found = [
        fault
        for name, hook in wanted.items()
        for fault in ([f"webhook {name} is missing"] if name not in hooks else _faults(hook, hooks[name], own, exempt))
    ]
    service = next(iter(wanted.values()))["clientConfig"]["service"]
    for name, hook in hooks.items():
        if name not in wanted and not (name.endswith(_OURS) and _asks(hook, service)):
            found.append(f"webhook {name} is none of Tutti's")
    return found


def certificates_in(pem: bytes) -> frozenset[bytes]:
    """Return the certificates of a PEM text, each without its line ends."""
    return frozenset(b"".join(each.split()) for each in _PEM.findall(pem))


def distrustful(stored: Document, authorities: Collection[bytes]) -> list[str]:
    """Return the webhooks that trust none of the authorities that sign our certificates: nobody can ask them."""
    return [
        hook.get("name", "")
        for hook in stored.get("webhooks") or ()
        if certificates_in(_bundle(hook)).isdisjoint(authorities)
    ]


def announced(stored: Document) -> bool:
    """Return whether any authority was written into a configuration; it is created without."""
    return any(_bundle(hook) for hook in stored.get("webhooks") or ())


def _bundle(hook: Document) -> bytes:
    return b64decode((hook.get("clientConfig") or {}).get("caBundle") or "")


def _faults(expected: Document, stored: Document, own: Collection[str], exempt: Collection[str]) -> Iterator[str]:
    name, service = expected["name"], expected["clientConfig"]["service"]
    if not (_asks(stored, service) and stored["clientConfig"]["service"].get("path") == service["path"]):
        yield f"webhook {name} does not ask Service {service['namespace']}/{service['name']} at {service['path']}"
    for field in ("failurePolicy", "matchPolicy", "reinvocationPolicy"):
        # The API server writes its defaults; one that is stricter than ours asks more.
        if field in expected and stored.get(field) != expected[field] and expected[field] not in ("Ignore", "Never"):
            yield f"webhook {name} has {field} {stored.get(field)} instead of {expected[field]}"
    for group, resource, operation in _requests(expected):
        if not any(_covers(rule, group, resource, operation) for rule in stored.get("rules") or ()):
            yield f"webhook {name} is not asked about {operation} of {resource}"
    for field in ("namespaceSelector", "objectSelector"):
        if _selector(stored.get(field), exempt) != _selector(expected.get(field), exempt):
            yield f"webhook {name} has a different {field}"
    groups = {group for rule in stored.get("rules") or () for group in rule.get("apiGroups") or ()}
    conditions = {each["expression"].strip() for each in expected.get("matchConditions") or ()}
    for each in stored.get("matchConditions") or ():
        if each.get("expression", "").strip() not in conditions and not groups & set(own):
            yield f"webhook {name} has a different condition {each.get('name')}"


def _asks(hook: Document, service: Document) -> bool:
    asked = (hook.get("clientConfig") or {}).get("service") or {}
    return all(asked.get(key) == service[key] for key in ("namespace", "name"))


def _requests(hook: Document) -> Iterator[tuple[str, str, str]]:
    for rule in hook["rules"]:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                for operation in rule["operations"]:
                    yield group, resource, operation


def _covers(rule: Document, group: str, resource: str, operation: str) -> bool:
    asked = (("apiGroups", group), ("apiVersions", "*"), ("resources", resource), ("operations", operation))
    named = all({value, "*"} & set(rule.get(key) or ()) for key, value in asked)
    return named and rule.get("scope", "*") == "*"


def _selector(selector: Document | None, exempt: Collection[str]) -> tuple[Document, list[dict[str, Any]]]:
    """Return a selector in one form, without namespaces that the configuration exempts."""
    written, kept = selector or {}, []
    for each in written.get("matchExpressions") or ():
        values = each.get("values") or []
        if each.get("key") == "kubernetes.io/metadata.name" and each.get("operator") == "NotIn":
            values = sorted(set(values) - set(exempt))
        kept.append({"key": each.get("key"), "operator": each.get("operator"), "values": values})
    return written.get("matchLabels") or {}, kept


def told(found: list[str]) -> str:
    """Return faults as people read them."""
    more = f"; and {counted(len(found) - TOLD_MAX, 'more fault')}" if len(found) > TOLD_MAX else ""
    tip = "apply the manifests again, and check the audit log for who wrote it"
    return f"jobs may bypass their queues: {'; '.join(found[:TOLD_MAX])}{more}; {tip}"
