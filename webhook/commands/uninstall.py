"""``tutti uninstall``: puts every job back as its owner wrote it, once the webhook and the reconciler are gone.

Takes Tutti's labels, annotations, scheduling gates and injected node selectors off every object of every known kind,
and lets go what only Tutti had suspended: all waiting jobs but those whose owner suspended them (a hold, or
``suspend: true`` in what they applied), and copies of a hub that may not start. Running jobs run on; what the API
server freezes in them stays, without effect.
Refuses while anybody would undo or forbid it: a reconciler that leads, or the webhook's registrations. Which kinds
there are besides the shipped ones is in the configuration: a file, else the ConfigMap that the cluster was run with.
"""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import orjson
from rich.console import Console

from webhook.commands import terminal
from webhook.commands.installed import stored_config
from webhook.config import Config, load
from webhook.core.notation import names
from webhook.core.notation.counted import counted
from webhook.errors import Conflict, Invalid, NotFound
from webhook.jobs.kinds.kind import JobKind
from webhook.jobs.kinds.registry import with_custom
from webhook.jobs.kinds.rest_paths import collection_path, object_path
from webhook.jobs.patches.marking import GATE, strip
from webhook.jobs.pricing.context import CONTEXT_PATHS, ReadContext, context_from
from webhook.jobs.reading import annotations
from webhook.jobs.reading.gating import is_child
from webhook.jobs.reading.job import awaits_permit
from webhook.jobs.reading.ours import OWN_ANNOTATIONS
from webhook.kube.api import JSON_PATCH, MERGE_PATCH, Api
from webhook.kube.election import LeaderRecord, leader_of
from webhook.kube.finding import every, find
from webhook.untyped import paths

Object = Mapping[str, Any]
ATTEMPTS: Final = 5
LEASE_MARGIN_SECONDS: Final = 1.0
_REGISTRATIONS: Final = tuple(
    f"/apis/admissionregistration.k8s.io/v1/{plural}/tutti"
    for plural in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
)
_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_RUNTIMES: Final = ("trainingruntimes", "clustertrainingruntimes")
_NAMESPACE_LABELS: Final = (names.GATED_NAMESPACE, names.FENCED_NAMESPACE)


async def give_back(kubeconfig: Path | None, config_file: Path | None, *, dry_run: bool) -> None:
    """Give every object back; with ``dry_run`` only say what would be written.

    Raises ApiError when Tutti still runs, or when something could not be written after several attempts; WrongInput
    where the configuration cannot be read.
    """
    async with terminal.cluster(kubeconfig, "tutti-uninstall") as api:
        config = await stored_config(api) if config_file is None else load(config_file)
        await Removal(api, config, terminal.console(), dry_run=dry_run).run()


class Removal:
    """One pass over everything that Tutti may have written on."""

    def __init__(self, api: Api, config: Config, console: Console, *, dry_run: bool) -> None:
        """Raises WrongInput where the configuration's job kinds are wrong."""
        self._api = api
        self._kinds = with_custom(config.kinds)
        self._console = console
        self._dry_run = dry_run
        self._written = 0
        self._left: list[str] = []

    async def run(self) -> None:
        """Check that Tutti is gone, then give back jobs, pods and namespaces. Raises ApiError."""
        try:
            await self._refuse_while_registered()
            await self._refuse_while_led()
        except Conflict as error:
            if not self._dry_run:
                raise
            self._console.print(f"would refuse: {error.message}", highlight=False, markup=False)
        context = await self._context()
        for kind in self._kinds.values():
            for served in kind.every_version:
                async for obj in every(self._api, collection_path(served)):
                    await self._job(served, obj, context)
        await self._pods()
        await self._namespaces()
        verb = "would be written" if self._dry_run else "written"
        self._console.print(f"{counted(self._written, 'object')} {verb}", highlight=False)
        if self._left:
            raise Invalid(0, "NotGivenBack", "; ".join(self._left))

    # -- is it safe ---------------------------------------------------------------------------------------------------

    async def _refuse_while_registered(self) -> None:
        for path in _REGISTRATIONS:
            if await find(self._api, path) is not None:
                name = path.rpartition("/")[0].rpartition("/")[2]
                raise Conflict(
                    0, "StillInstalled", f"{name}/tutti is still registered and refuses these writes; delete it first"
                )

    async def _refuse_while_led(self) -> None:
        """A lease is judged by what is seen, not by its times: a clock of ours proves nothing about another machine."""
        first = await self._leader()
        if first is None or not first.holder:
            return
        await asyncio.sleep(first.lease_seconds + LEASE_MARGIN_SECONDS)
        second = await self._leader()
        if second is not None and second.holder and second != first:
            raise Conflict(
                0,
                "StillLed",
                f"reconciler {second.holder} holds the lease and would take these jobs back; "
                f"scale deployment tutti-reconciler in {names.SYSTEM_NAMESPACE} to 0 first",
            )

    async def _leader(self) -> LeaderRecord | None:
        ledger = await find(self._api, f"{names.CONFIG_MAPS}/{names.LEDGER_NAME}")
        return None if ledger is None else leader_of(ledger)

    # -- giving back --------------------------------------------------------------------------------------------------

    async def _context(self) -> ReadContext:
        """Return what tells where in a job its pods are: a TrainJob leaves that to its runtime."""
        found = [obj for name in _RUNTIMES async for obj in every(self._api, CONTEXT_PATHS[name])]
        return context_from(training_runtimes=found)

    async def _job(self, kind: JobKind, listed: Object, context: ReadContext) -> None:
        metadata = listed["metadata"]
        path = object_path(kind, metadata.get("namespace", ""), metadata["name"])
        obj: Object | None = listed
        for _ in range(ATTEMPTS):
            patch = () if obj is None else restoring_patch(kind, obj, self._kinds, context)
            if obj is None or not patch or await self._patched(path, patch, JSON_PATCH, _what(kind, obj, patch)):
                return
            obj = await find(self._api, path)
        self._left.append(f"{kind.kind} {metadata.get('namespace')}/{metadata['name']} could not be written")

    async def _pods(self) -> None:
        async for pod in every(self._api, "/api/v1/pods", names.GANG_LABEL):
            gates = paths.find(pod, ("spec", "schedulingGates"))
            if isinstance(gates, list) and GATE in gates:
                metadata = pod["metadata"]
                path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
                patch = [{"op": "test", "path": f"/spec/schedulingGates/{gates.index(GATE)}", "value": GATE}]
                patch.append({"op": "remove", "path": f"/spec/schedulingGates/{gates.index(GATE)}"})
                await self._patched(path, patch, JSON_PATCH, f"Pod {metadata['namespace']}/{metadata['name']}: ungate")

    async def _namespaces(self) -> None:
        for label in _NAMESPACE_LABELS:
            async for namespace in every(self._api, "/api/v1/namespaces", label):
                name = namespace["metadata"]["name"]
                body = {"metadata": {"labels": {label: None}}}
                await self._patched(
                    f"/api/v1/namespaces/{name}", body, MERGE_PATCH, f"Namespace {name}: remove {label}"
                )

    async def _patched(self, path: str, patch: object, content_type: str, what: str) -> bool:
        """Write one patch; return whether the object needs no second look."""
        self._console.print(what, highlight=False, markup=False)
        if not self._dry_run:
            try:
                await self._api.request("PATCH", path, body=orjson.dumps(patch), content_type=content_type)
            except NotFound:
                return True
            except Conflict:
                return False
            except Invalid as error:
                self._console.print(f"  {error.message}", highlight=False, markup=False)
                return False
        self._written += 1
        return True


def restoring_patch(
    kind: JobKind, obj: Object, kinds: Mapping[str, JobKind], context: ReadContext
) -> Sequence[Mapping[str, Any]]:
    """Return the patch that makes ``obj`` what its owner wrote; empty when it is that already.

    It applies to the very version that was read: what others write meanwhile is looked at again. A copy that may not
    start stays as it is: its hub has it suspended, for the job may run in another member, and what says so stays too.
    """
    if awaits_permit(obj["metadata"].get("annotations") or {}, obj["metadata"].get("uid", "")):
        return []
    suspend = False if _held_by_us(kind, obj, kinds) else None
    patch = strip(kind, obj, context, suspend=suspend)
    version = obj["metadata"].get("resourceVersion")
    return [{"op": "replace", "path": "/metadata/resourceVersion", "value": version}, *patch] if patch else []


def _held_by_us(kind: JobKind, obj: Object, kinds: Mapping[str, JobKind]) -> bool:
    """Return whether the object is suspended and nobody but Tutti wanted that."""
    if kind.suspend is None or paths.find(obj, kind.suspend) is not True or is_child(kind, obj, kinds):
        return False
    if not _touched(obj):
        return False
    metadata = obj["metadata"]
    own = metadata.get("annotations") or {}
    uid = metadata.get("uid", "")
    if annotations.decode_hold(own.get(names.HOLD), uid):
        return False
    if not kind.evictable and annotations.decode_admission(own.get(names.ADMISSION), uid) is not None:
        # It was started, and its owner paused it: nobody else suspends such a job.
        return False
    try:
        applied = orjson.loads(own.get(_LAST_APPLIED) or "{}")
    except ValueError:
        applied = {}
    return paths.find(applied, kind.suspend) is not True


def _touched(obj: Object) -> bool:
    """Return whether anything of ours is on the object or on its pod templates."""
    own = obj["metadata"].get("annotations") or {}
    # That a hub places it stays on it.
    return bool((OWN_ANNOTATIONS - {names.MANAGED_BY}) & own.keys()) or _mentions(obj.get("spec"), names.GANG_LABEL)


def _mentions(node: object, key: str) -> bool:
    if isinstance(node, Mapping):
        return key in node or any(_mentions(value, key) for value in node.values())
    return isinstance(node, list) and any(_mentions(item, key) for item in node)


def _what(kind: JobKind, obj: Object, patch: Sequence[Mapping[str, Any]]) -> str:
    suspend = None if kind.suspend is None else paths.pointer(*kind.suspend)
    released = any(operation["path"] == suspend for operation in patch)
    held = not released and kind.suspend is not None and paths.find(obj, kind.suspend) is True
    name = f"{kind.kind} {obj['metadata'].get('namespace')}/{obj['metadata']['name']}"
    return f"{name}: {'un-suspend, ' * released}remove Tutti's labels and annotations{', leave it suspended' * held}"
