"""A hub and two members: three control planes with a Tutti in each, a fleet by the commands of ``docs/fleet.md``."""

import base64
import contextlib
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import yaml

from tests.e2e import queues
from tests.e2e.controlplane import operators
from tests.e2e.controlplane.binaries import say
from tests.e2e.controlplane.cluster import Cluster, Shape
from tests.e2e.controlplane.install import NAMESPACE as SYSTEM
from tests.e2e.controlplane.install import ROOT, Installation
from tests.e2e.controlplane.link import Link
from tests.e2e.kubectl import Kubectl, wait_until
from tests.e2e.shell import Shell
from webhook.fleet.credentials.account import ACCOUNT

NAMESPACE: Final = "team-a"
HUB: Final = "hub"
MEMBERS: Final = ("left", "right")
PAGE: Final = ROOT / "docs" / "fleet.md"
MEMBER_GPUS: Final = 4
HUB_GPUS: Final = 8


def set_up() -> list[str]:
    """Return the page's commands that make a fleet of clusters that have Tutti; the last one submits a job."""
    return _commands("Set-up")


def multikueue_set_up() -> list[str]:
    """Return the page's commands that set a fleet up by MultiKueue's manifests; the last three show conditions."""
    return _commands("Coming from MultiKueue")


def log_rights() -> list[str]:
    """Return the page's commands that let the hub's account read logs in ``$member``."""
    return [line for line in _commands("What runs in the members") if line.startswith("kubectl --kubeconfig")]


def _commands(section: str) -> list[str]:
    found = re.search(rf"^## {section}\n.*?^ *```sh\n(.*?)^ *```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert found is not None, f"{PAGE} has no block of commands in {section}"
    return [line.strip() for line in found[1].splitlines()]


class FleetClusters:
    """The three, and ``tutti hub`` with no more rights than shipped. Use it as a context manager."""

    def __init__(
        self,
        report: Callable[[str], None] = say,
        *,
        training: bool = False,
        silent_hub_seconds: int | None = None,
    ) -> None:
        """``training``: the members run operators, of PyTorchJobs and JobSets too, and the hub has their kinds.

        ``silent_hub_seconds``: the dead-man switch is on, and the hub reaches its members by ``links``.
        """
        self._report = report
        self._silent_hub_seconds = silent_hub_seconds
        self.links: dict[str, Link] = {}
        """Between the hub and a member, where there is one."""
        self._training = training
        self._stack = contextlib.ExitStack()
        self.clusters: dict[str, Cluster] = {}
        self.installations: dict[str, Installation] = {}
        self.kubectl: dict[str, Kubectl] = {}
        """The administrator of each cluster, in the namespace that has a queue everywhere."""

    @property
    def hub(self) -> Kubectl:
        """Where jobs are submitted."""
        return self.kubectl[HUB]

    @property
    def members(self) -> dict[str, Kubectl]:
        """Where they run."""
        return {name: self.kubectl[name] for name in MEMBERS}

    @property
    def folder(self) -> Path:
        """Where a kubeconfig of each cluster's administrator is, named as the cluster."""
        return self.clusters[HUB].directory / "clusters"

    def __enter__(self) -> Self:
        try:
            for name in (*MEMBERS, HUB):
                self._start(name)
            self.folder.mkdir()
            for name, cluster in self.clusters.items():
                (self.folder / name).write_bytes(cluster.kubeconfig.read_bytes())
            for command in set_up()[:-1]:
                self.shell(command)
            self._run_hub()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def shell(self, command: str) -> str:
        """Return what a command of the page prints, where it names the clusters."""
        programs = self.clusters[HUB].directory / "bin"
        if not programs.exists():
            programs.mkdir()
            for name, run in (("tutti", "-m webhook"), ("kubectl-amc", "-c 'from webhook.cli import amc; amc()'")):
                (programs / name).write_text(f'#!/bin/sh\nexec {sys.executable} {run} "$@"\n')
                (programs / name).chmod(0o755)
        path = f"{programs}{os.pathsep}{os.environ['PATH']}"
        places = {"CLUSTERS": str(self.folder), "PATH": path, "PYTHONPATH": str(ROOT)}
        return Shell(self.hub, places)(command)

    def _start(self, name: str) -> None:
        hub = name == HUB
        cluster = Cluster(Shape(nodes=0 if hub else 1, operators=self._training and not hub), self._report)
        self.clusters[name] = self._stack.enter_context(cluster)
        if hub and self._training:
            operators.define_kinds(cluster)
        switch = {} if self._silent_hub_seconds is None else {"silent_hub_seconds": self._silent_hub_seconds}
        installation = Installation(cluster, replicas=1, overrides={"hub": True} if hub else switch)
        self.installations[name] = installation.install()
        root = Kubectl(cluster.binaries["kubectl"], cluster.kubeconfig)
        root("create", "namespace", NAMESPACE)
        if hub:
            root("apply", "--server-side", "-f", str(ROOT / "manifests" / "crds" / "optional" / "propagation.yaml"))
        self.kubectl[name] = root.in_namespace(NAMESPACE)
        queues.give_queue(self.kubectl[name], gpus=HUB_GPUS if hub else MEMBER_GPUS)

    def link(self, member: str) -> Link:
        """Have the hub reach a member by a link that can be slowed down and cut; it notices within seconds."""
        path = self._members_folder / member
        document = yaml.safe_load(path.read_text())
        cluster = document["clusters"][0]["cluster"]
        link = Link(self.clusters[HUB].ports.take(), cluster["server"])
        self.links[member] = self._stack.enter_context(link)
        cluster["server"] = f"https://127.0.0.1:{link.port}"
        path.write_text(yaml.safe_dump(document))
        return link

    @property
    def _members_folder(self) -> Path:
        """What is mounted into the hub."""
        return self.clusters[HUB].directory / "members"

    def _run_hub(self) -> None:
        """Do what a kubelet would do for the Deployment: mount its Secret and its configuration, and run it."""
        hub, members = self.clusters[HUB], self._members_folder
        members.mkdir()
        system = self.hub.in_namespace(SYSTEM)
        for name, encoded in system.get("secret", "tutti-hub-members")["data"].items():
            (members / name).write_bytes(base64.b64decode(encoded))
            if self._silent_hub_seconds is not None:
                self.link(name)
        base = yaml.safe_load(system.get("configmap", "tutti-hub")["data"]["config.yaml"])
        health = hub.ports.take()
        local = {
            "kubeconfig": str(hub.kubeconfig_for_service_account(SYSTEM, ACCOUNT)),
            "fleet_members": str(members),
            "listen": {"health_port": health},
        }
        config = hub.directory / "hub.yaml"
        config.write_text(yaml.safe_dump(base | local | {"fleet_dead_man": self._silent_hub_seconds is not None}))
        environment = {"PYTHONPATH": str(ROOT)}
        command = ("-m", "webhook", "hub", "--config", config)
        hub.component("hub", *command, program=sys.executable, environment=environment).start()
        # No kubelet runs its pods, so as a Deployment it would never be ready.
        system("delete", "deployment", "tutti-hub", "--wait=false")
        ready = f"http://127.0.0.1:{health}/readyz"
        wait_until(lambda: hub.http_ok(ready), 60, what="tutti hub is ready")
