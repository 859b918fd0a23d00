"""What jobs refer to: made in the hub, changed and taken away there meanwhile, and some of it in members before."""

import asyncio
import contextlib
from collections.abc import Iterator, Mapping
from random import Random
from typing import Any, Final

import orjson

from tests.unit.fleet.clusters import NAMESPACE, Fleet, Side
from webhook.core.notation import names
from webhook.errors import Forbidden, NotFound
from webhook.fleet.policies.propagation import VERSIONS
from webhook.kube.api import MERGE_PATCH

Need = tuple[str, str]
"""(kind, name)."""
NEEDED: Final = {"ConfigMap": "configmaps", "Secret": "secrets", "ServiceAccount": "serviceaccounts"}
WORLDS: Final = 0.4
"""In so many seeds jobs refer to something, and a policy says that it comes along."""
JOBS: Final = 0.8
"""Of the jobs of these."""
OWN: Final = 0.08
"""How likely a member has one of its own."""
OPTIONAL: Final = 0.2
FIXED: Final = ("ConfigMap", "fixed")
HAS_FIXED: Final = 0.7
"""Of those that did not pick it: it must be in a member still when the hub has another one by that name."""
CHANGES_SECONDS: Final = (1.0, 10.0)
REPLACED: Final = 0.5
"""Of the changes: of what is immutable, while members have it."""
AWAY_SECONDS: Final = (0.0, 5.0)
"""Between the deletion of one in the hub and its creation."""
SHARED: Final[tuple[Need, ...]] = (
    ("ConfigMap", "settings"),
    ("ConfigMap", "classes"),
    ("ConfigMap", "fixed"),
    ("ConfigMap", "absent"),
    ("ConfigMap", "elsewhere"),
    ("Secret", "registry"),
    ("Secret", "fixed"),
    ("Secret", "shut"),
    ("ServiceAccount", "trainer"),
    ("ServiceAccount", "plain"),
)
"""Every job picks among these, so that several have the same. ``fixed``: immutable."""
MISSING: Final = ("absent", "elsewhere")
"""In the namespace of the jobs the hub has none; but the latter in another one."""
SHUT: Final = "shut"
"""Which the hub may not read."""
_KINDS: Final = (
    ("batch/v1", "Job"),
    ("kubeflow.org/v1", "PyTorchJob"),
    ("sparkoperator.k8s.io/v1beta2", "SparkApplication"),
)


class Needs:
    """What the jobs of a story refer to."""

    def __init__(self, seed: int) -> None:
        self._chance = Random(f"needs {seed}")
        """Its own: stories without any are told as before there were these."""
        self.some = self._chance.random() < WORLDS
        self.required: dict[str, list[Need]] = {}
        """By the name of a job, without what its pods start without."""
        self.theirs: set[tuple[str, Need]] = set()
        """(member, what it has of its own)."""
        self._told = 0

    # -- what is there ------------------------------------------------------------------------------------------------

    async def plant(self, world: Fleet, *, policy: bool) -> None:
        """Make it, and the policy, before anything else happens."""
        if not self.some:
            return
        for kind, name in SHARED:
            if name not in MISSING:
                await world.hub.cluster.create(self._made(kind, name))
        await world.hub.cluster.create(self._made("ConfigMap", "elsewhere", "default"))
        for member, need in [(member, need) for member in sorted(world.members) for need in SHARED]:
            if self._chance.random() < OWN:
                theirs = self._made(*need)
                if self._chance.random() < 0.5:
                    theirs["metadata"]["labels"] = {names.ORIGIN_LABEL: "another-hub"}
                await world.members[member].cluster.create(theirs)
                self.theirs.add((member, need))
        if policy:
            await world.hub.cluster.create(_policy())

    def refer(self, job: dict[str, Any]) -> dict[str, Any]:
        """Have a job refer to some of it."""
        if not self.some or self._chance.random() >= JOBS:
            return job
        needs = self._chance.sample(SHARED, self._chance.randint(2, 6))
        if FIXED not in needs and self._chance.random() < HAS_FIXED:
            needs.append(FIXED)
        optional = {need for need in needs if self._chance.random() < OPTIONAL and need[0] != "ServiceAccount"}
        if job["kind"] == "SparkApplication":
            # Its own fields know nothing optional.
            optional = set()
            _spark_refers(job["spec"]["driver"], needs)
        for template in _templates(job["spec"]):
            _pod_refers(template["spec"], needs, optional)
        accounts = [need for need in needs if need[0] == "ServiceAccount"]
        # A pod has one: the first.
        self.required[job["metadata"]["name"]] = [
            need for need in needs if need not in optional and need not in accounts[1:]
        ]
        return job

    def _made(self, kind: str, name: str, namespace: str = NAMESPACE) -> dict[str, Any]:
        made: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": kind,
            "metadata": {"name": name, "namespace": namespace},
        }
        if name == "fixed":
            made["immutable"] = True
        if kind == "ServiceAccount":
            return made | ({"imagePullSecrets": [{"name": "registry"}]} if name == "trainer" else {})
        return made | self._content()

    def _content(self) -> dict[str, Any]:
        self._told += 1
        return {"data": {"turn": f"{self._told:04}"}}

    # -- what becomes of it in the hub --------------------------------------------------------------------------------

    def asked(self, method: str, path: str) -> None:
        """Take in a request to the hub's cluster. Raises Forbidden of what its RBAC does not let a hub read."""
        if self.some and path.endswith(f"/secrets/{SHUT}"):
            raise Forbidden(403, "Forbidden", f"{method} {path}")

    async def change(self, hub: Side) -> None:
        """Change it in the hub now and then, or delete it and make it again."""
        while self.some:
            await asyncio.sleep(self._chance.uniform(*CHANGES_SECONDS))
            immutable = self._chance.random() < REPLACED
            among = [need for need in SHARED if need[1] not in MISSING and (not immutable or need[1] == "fixed")]
            kind, name = self._chance.choice(among)
            where = f"/api/v1/namespaces/{NAMESPACE}/{NEEDED[kind]}"
            if name != "fixed" and self._chance.random() < 0.7:
                change = self._content() if kind != "ServiceAccount" else {"automountServiceAccountToken": False}
                # It may be in no backup.
                with contextlib.suppress(NotFound):
                    body = orjson.dumps(change)
                    await hub.admin.request("PATCH", f"{where}/{name}", body=body, content_type=MERGE_PATCH)
                continue
            with contextlib.suppress(NotFound):
                await hub.admin.request("DELETE", f"{where}/{name}")
            try:
                await asyncio.sleep(self._chance.uniform(*AWAY_SECONDS))
            finally:
                # Also when the story ends meanwhile.
                if hub.cluster.server.store.get(("", NEEDED[kind]), NAMESPACE, name) is None:
                    await hub.cluster.create(self._made(kind, name))


def _policy() -> dict[str, Any]:
    selected = [{"apiVersion": version, "kind": kind} for version, kind in _KINDS]
    return {
        "apiVersion": VERSIONS[0],
        "kind": "PropagationPolicy",
        "metadata": {"name": "brings", "namespace": NAMESPACE},
        "spec": {"propagateDeps": True, "resourceSelectors": selected},
    }


def _templates(spec: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    if "template" in spec:
        yield spec["template"]
    for replicas in spec.get("pytorchReplicaSpecs", {}).values():
        yield replicas["template"]


def _pod_refers(spec: dict[str, Any], needs: list[Need], optional: set[Need]) -> None:
    volumes = spec.setdefault("volumes", [])
    for at, (kind, name) in enumerate(needs):
        spares = {"optional": True} if (kind, name) in optional else {}
        if kind == "ConfigMap":
            volumes.append({"name": f"v{at}", "configMap": {"name": name, **spares}})
        elif kind == "Secret":
            volumes.append({"name": f"v{at}", "secret": {"secretName": name, **spares}})
        else:
            spec.setdefault("serviceAccountName", name)


def _spark_refers(driver: dict[str, Any], needs: list[Need]) -> None:
    for kind, name in needs:
        if kind == "ConfigMap":
            driver.setdefault("configMaps", []).append({"name": name, "path": "/etc/x"})
        elif kind == "Secret":
            driver.setdefault("secrets", []).append({"name": name, "path": "/etc/y", "secretType": "Generic"})
        else:
            driver.setdefault("serviceAccount", name)
