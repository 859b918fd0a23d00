"""``tutti status``: is Tutti well, on one screen. Each thing is checked by itself: one that fails hides no other."""

from base64 import b64decode
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import orjson
from cryptography import x509
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from webhook.clock import SystemClock
from webhook.commands import terminal
from webhook.commands.installed import stored_config
from webhook.commands.show import fleet_health
from webhook.commands.show.finding import Finding
from webhook.commands.show.ledger import leader_line, read_ledger
from webhook.commands.show.queue import awaiting_member, waiting
from webhook.commands.show.reading import visible_queues
from webhook.controllers.ledger.quarantine import PLACES, kept_since
from webhook.controllers.reporting import registration_faults
from webhook.controllers.reporting.announce import REBUILD_WAITS
from webhook.core.ledger import text as ledger_text
from webhook.core.ledger.text import LedgerCorrupt
from webhook.core.notation import names
from webhook.core.notation.counted import counted
from webhook.dialects.kueue import objects as kueue
from webhook.dialects.registry import resource_of
from webhook.errors import ApiError, Forbidden, NotFound, Unavailable
from webhook.jobs.kinds.registry import with_custom
from webhook.kube.api import Api
from webhook.kube.election import leader_of
from webhook.kube.finding import find
from webhook.server.http.tls import issued, renewal_due
from webhook.untyped import paths
from webhook.untyped.values import mappings
from webhook.visibility.http.group import Document
from webhook.wire.times import human_age

_SERVICES: Final = f"/api/v1/namespaces/{names.SYSTEM_NAMESPACE}/services"
_DEPLOYMENTS: Final = f"/apis/apps/v1/namespaces/{names.SYSTEM_NAMESPACE}/deployments"
_EVENTS: Final = f"/api/v1/namespaces/{names.SYSTEM_NAMESPACE}/events"
_REGISTRATIONS: Final = "/apis/admissionregistration.k8s.io/v1"
_VALIDATING: Final = "validatingwebhookconfigurations"
_MUTATING: Final = "mutatingwebhookconfigurations"
_SERVING: Final = f"/api/v1/namespaces/{names.SYSTEM_NAMESPACE}/secrets/tutti-certs"


async def show(kubeconfig: Path | None) -> bool:
    """Print whether each part of Tutti is well; return whether all are."""
    async with terminal.cluster(kubeconfig) as api:
        found = await look(api, SystemClock().now())
    print_health(terminal.console(), found)
    return all(finding.well for finding in found)


async def look(api: Api, now: float) -> list[Finding]:
    """Return what was found, Unix time being ``now``. Never raises ApiError: no answer is a finding.

    It is the only one where the API server does not answer from the beginning.
    """

    async def certificates() -> Sequence[Finding]:
        return [*await _authorities(api, now), *await _serving(api, now)]

    async def ledger() -> Sequence[Finding]:
        found = list(_ledger(await read_ledger(api), now))
        missing = [] if found[-1].well else await _rebuild_waits(api)
        return [*found, *missing, *await _quarantined(api, now)]

    looks: dict[str, Callable[[], Awaitable[Sequence[Finding]]]] = {
        "webhook": lambda: _replicas(api, "webhook", lambda: _registered(api)),
        "answer": lambda: _answer(api),
        "reconciler": lambda: _replicas(api, "reconciler", lambda: _led(api, now)),
        "certificates": certificates,
        "ledger": ledger,
        "registration": lambda: _registrations(api),
        "queues": lambda: _queues(api),
        "hub": lambda: _hub(api),
        "members": lambda: fleet_health.look(api, now),
    }
    found: list[Finding] = []
    for what, seek in looks.items():
        try:
            found += await seek()
        except Forbidden as error:
            found.append(Finding(what, False, f"cannot be read: {error}; this needs an administrator's rights"))
        except ApiError as error:
            if isinstance(error, Unavailable) and not error.status and not found:
                return [Finding("API server", False, terminal.unanswered(error))]
            found.append(Finding(what, False, f"cannot be read: {error}"))
    return found


def print_health(console: Console, found: Sequence[Finding]) -> None:
    """Print one line for each thing that was looked at."""
    lines = Table.grid(padding=(0, 2))
    for finding in found:
        word = "[green]ok[/green]" if finding.well else "[red]wrong[/red]"
        lines.add_row(word, f"[bold]{finding.what}[/bold]", escape(finding.text))
    console.print(lines, highlight=False)


async def _replicas(api: Api, part: str, elsewhere: Callable[[], Awaitable[tuple[bool, str]]]) -> Sequence[Finding]:
    """Return how many replicas of a Deployment are ready; without one, what can be seen of what runs ``elsewhere``."""
    status = await find(api, f"{_DEPLOYMENTS}/tutti-{part}")
    if status is None:
        well, text = await elsewhere()
        return [Finding(part, well, f"there is no Deployment tutti-{part}; {text}")]
    wanted = paths.find(status, ("spec", "replicas"))
    wanted, ready = 1 if wanted is None else wanted, paths.find(status, ("status", "readyReplicas")) or 0
    return [Finding(part, ready >= wanted > 0, f"{ready} of {wanted} replicas are ready")]


async def _hooks(api: Api, plural: str) -> Sequence[Document]:
    """Return what is registered; nothing where somebody deleted the registration."""
    return mappings(paths.find(await find(api, f"{_REGISTRATIONS}/{plural}/tutti"), ("webhooks",)))


async def _registered(api: Api) -> tuple[bool, str]:
    """Return whether the API server knows where to ask."""
    clients = [hook.get("clientConfig") or {} for hook in await _hooks(api, _VALIDATING)]
    if not clients:
        return False, "nothing is registered: no job is gated"
    places = set()
    for client in clients:
        service = client.get("service")
        if service is None:
            places.add(str(client.get("url")).partition("?")[0])
            continue
        place = f"{service.get('namespace')}/{service.get('name')}"
        if service.get("namespace") == names.SYSTEM_NAMESPACE and place not in places:
            stored = await find(api, f"{_SERVICES}/{service.get('name')}")
            if stored is None:
                return False, f"Service {place}, which is registered, does not exist: jobs are refused"
            if paths.find(stored, ("spec", "type")) != "ExternalName" and paths.find(stored, ("spec", "selector")):
                return (
                    False,
                    f"Service {place}, which is registered, has no pods without that Deployment: jobs are refused",
                )
        places.add(place)
    return True, f"registered at {', '.join(sorted(places))}"


async def _answer(api: Api) -> Sequence[Finding]:
    """Return whether the API server reaches the webhook, by a flavor that it asks about and does not store.

    Nobody else can reach it; a certificate that the API server does not trust is found in this way too. Where nothing
    is registered the flavor would pass unseen.
    """
    try:
        missing = [plural for plural in (_VALIDATING, _MUTATING) if not await _hooks(api, plural)]
    except Forbidden:
        missing = []
    if missing:
        text = f"no webhook is called: {' and '.join(f'{plural}/tutti' for plural in missing)} missing or empty"
        return [Finding("answer", False, f"{text}, so jobs bypass their queues; apply the manifests again")]
    flavor = resource_of(kueue.GROUP, "ResourceFlavor")
    assert flavor is not None
    for version in flavor.versions:
        probe = {"apiVersion": f"{flavor.group}/{version}", "kind": flavor.kind, "spec": {}}
        body = orjson.dumps({**probe, "metadata": {"generateName": "tutti-status-"}})
        try:
            await api.request("POST", flavor.path(version), query={"dryRun": "All"}, body=body)
        except NotFound:
            continue
        except Forbidden as error:
            return [Finding("answer", True, f"not seen: {error.message}")]
        except ApiError as error:
            return [Finding("answer", False, f"none: {error.message}")]
        return [Finding("answer", True, "the API server reaches the webhook")]
    return [Finding("answer", True, f"not seen: the cluster does not serve {flavor.group}")]


async def _registrations(api: Api) -> Sequence[Finding]:
    """Return what registrations lack that are there: without one nothing is gated, which is found beside."""
    config = await stored_config(api)
    found = await registration_faults.look(
        api, registration_faults.own_groups(with_custom(config.kinds)), config.exempt_namespaces
    )
    if lacking := [fault for fault in found if not fault.startswith("there is no ")]:
        return [Finding("registration", False, registration_faults.told(lacking))]
    return []


async def _led(api: Api, now: float) -> tuple[bool, str]:
    """Return whether some reconciler holds the lease, wherever it runs."""
    well, text = leader_line(leader_of(await read_ledger(api)), now)
    return well, "a reconciler elsewhere leads" if well else text


async def _hub(api: Api) -> Sequence[Finding]:
    """Return whether ``tutti hub`` runs; nothing where this cluster is no hub."""

    async def elsewhere() -> tuple[bool, str]:
        return True, "whether tutti hub runs elsewhere is not seen"

    return [] if await find(api, fleet_health.HUB) is None else await _replicas(api, "hub", elsewhere)


async def _authorities(api: Api, now: float) -> Sequence[Finding]:
    """Return whether the API server trusts somebody still."""
    try:
        bundles = await _bundles(api)
    except ValueError:
        return [Finding("certificates", False, "a registration has no readable caBundle: see certs/README.md")]
    ends = [max(bundle, key=lambda certificate: certificate.not_valid_after_utc) for bundle in bundles]
    if not ends:
        return [Finding("certificates", False, "nothing is registered: no job is gated")]
    return [_lasts("the authority", min(ends, key=lambda certificate: certificate.not_valid_after_utc), now)]


async def _bundles(api: Api) -> list[list[x509.Certificate]]:
    """Return the authorities of each registration. Raises ValueError where they cannot be read."""
    written = {paths.find(hook, ("clientConfig", "caBundle")) or "" for hook in await _hooks(api, _VALIDATING)}
    return [x509.load_pem_x509_certificates(b64decode(bundle)) for bundle in sorted(written)]


async def _serving(api: Api, now: float) -> Sequence[Finding]:
    """Return whether what the pods serve with lasts; its Secret has the key too, so few may read it."""
    try:
        secret = orjson.loads(await api.request("GET", _SERVING))
    except Forbidden as error:
        return [Finding("certificates", True, f"serving certificate not seen: {error.message}")]
    except NotFound:
        return [Finding("certificates", True, "serving certificate not seen: it is in no Secret tutti-certs")]
    try:
        chain = x509.load_pem_x509_certificates(b64decode(paths.find(secret, ("data", "tls.crt")) or ""))
    except ValueError:
        text = "Secret tutti-certs has no readable tls.crt: see certs/README.md"
        return [Finding("certificates", False, text)]
    try:
        bundles = await _bundles(api)
        strange = not all(any(issued(each, one) for each in chain for one in bundle) for bundle in bundles)
    except ValueError:
        # The authority's own line says that.
        strange = False
    if strange:
        text = "no registered authority issued the serving certificate, so no review is answered"
        return [Finding("certificates", False, f"{text}: see certs/README.md")]
    return [_lasts("the serving certificate", chain[0], now)]


def _lasts(what: str, certificate: x509.Certificate, now: float) -> Finding:
    """Return whether a certificate lasts; it is wrong some time before its end, while pods still serve, and as soon as
    the alert is due.
    """
    left = certificate.not_valid_after_utc.timestamp() - now
    text = f"{what} expired {human_age(-left)} ago" if left < 0 else f"{what} lasts {human_age(left)}"
    return Finding("certificates", now < renewal_due(certificate), text)


def _ledger(stored: Document, now: float) -> Iterator[Finding]:
    yield Finding("leader", *leader_line(leader_of(stored), now))
    data = stored.get("data") or {}
    try:
        ledger = ledger_text.decode(data)
    except LedgerCorrupt as error:
        yield Finding("ledger", False, f"{error}; the leader rebuilds it from the jobs")
        return
    share = ledger_text.size_bytes(data) / ledger_text.BYTES_MAX
    text = f"{counted(len(ledger.entries), 'reservation')}, {100 * share:.0f} % full"
    yield Finding("ledger", share < ledger_text.FULL_AT, text)


async def _rebuild_waits(api: Api) -> list[Finding]:
    """Return for what the leader waits before it makes a ledger, as its last event says; nothing where it does not."""
    query = {"fieldSelector": f"reason={REBUILD_WAITS}"}
    try:
        events = orjson.loads(await api.request("GET", _EVENTS, query=query))["items"]
    except (NotFound, Forbidden):
        return []
    last = max(events, key=lambda event: event.get("lastTimestamp") or "", default=None)
    return [] if last is None else [Finding("ledger", False, last["message"])]


async def _quarantined(api: Api, now: float) -> list[Finding]:
    """Return which copies of broken ledgers are kept: it is well again, and somebody should ask why it was not."""
    found = []
    for name in PLACES:
        if copy := await find(api, f"{names.CONFIG_MAPS}/{name}"):
            text = (
                f"was broken {human_age(now - kept_since(copy))} ago and rebuilt; ConfigMap {name} has the broken copy"
            )
            found.append(Finding("ledger", True, text))
    return found


async def _queues(api: Api) -> Sequence[Finding]:
    """Return the queues that admit nothing; their documents come from the read API, so that it answers is found too."""
    documents = await visible_queues(api, names.SYSTEM_NAMESPACE)
    queues = [document for document in documents if "queueingStrategy" in document["spec"]]
    counted_once = [document for document in queues if "clusterQueue" not in document["spec"]]
    waits = sum(waiting(document) for document in counted_once)
    for_member = sum(awaiting_member(document) for document in counted_once)
    blocked = [
        Finding("queue", False, f"{document['metadata']['name']} admits nothing: {condition['message']}")
        for document in queues
        for condition in document["status"].get("conditions", ())
        if condition["type"] == "Active" and condition["status"] == "False"
    ]
    text = f"{counted(len(counted_once), 'queue')}, {counted(waits, 'gang')} waiting"
    text += f", {for_member} of them for a member of the fleet" if for_member else ""
    return [*blocked, Finding("queues", True, text)]
