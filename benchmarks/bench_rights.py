"""What the overlay right-to-use costs the API server for each job that is created, with 20 classes of each kind.

A real control plane with Tutti, whose API server is asked by one user, without a pause, to create a job in a dry run:
all of admission, nothing stored. Printed for jobs that name no class, that name two which their owner may use, and that
are refused: the API server's processor time for one, and the time until the answer, without the overlay and with it,
and the ratio. Both are measured in turns, several times; what the API server spends on its own meanwhile is taken off.

Run: ``python -m benchmarks.bench_rights [--creates 300] [--rounds 3]``
"""

import argparse
import http.client
import json
import os
import ssl
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import urlsplit

from tests.e2e.conftest import create_namespace, member
from tests.e2e.controlplane.cluster import Cluster, Shape
from tests.e2e.controlplane.install import ROOT, Installation
from tests.e2e.kubectl import Kubectl, wait_until
from tests.e2e.load import api_of
from tests.e2e.objects import job, pod_template
from tests.e2e.queues import QUEUE, give_queue
from webhook.core.notation import names

CLASSES: Final = 20
OVERLAY: Final = str(ROOT / "manifests" / "overlays" / "right-to-use")
NAMESPACE: Final = "rights"
USER: Final = f"{NAMESPACE}-owner"
NOT_GIVEN: Final = f"class-{CLASSES - 1:02}"
TICKS: Final = os.sysconf("SC_CLK_TCK")


def made(name: str = "") -> bytes:
    """Return a job, of a WorkloadPriorityClass and a PriorityClass of that name where one is given."""
    wanted = job("train", 2, pod_template(), QUEUE)
    if name:
        wanted["metadata"]["labels"][names.PRIORITY_CLASS_LABEL] = name
        wanted["spec"]["template"]["spec"]["priorityClassName"] = name
    return json.dumps(wanted).encode()


KINDS: Final = {"names no class": made(), "names two it may use": made("class-00"), "is refused": made(NOT_GIVEN)}


class Caller:
    """One connection of the user."""

    def __init__(self, cluster: Cluster) -> None:
        api_of(cluster, USER)  # writes the user's key
        keys = cluster.directory / "users"
        tls = ssl.create_default_context(cafile=str(cluster.directory / "keys" / "ca.crt"))
        tls.load_cert_chain(keys / f"{USER}.crt", keys / f"{USER}.key")
        self._connection = http.client.HTTPSConnection(urlsplit(cluster.server).netloc, context=tls)
        self._pid = cluster.components["kube-apiserver"].pid

    def create(self, body: bytes) -> tuple[int, str]:
        """Create a job in a dry run; return the status of the answer and its headers."""
        path = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs?dryRun=All"
        self._connection.request("POST", path, body, {"Content-Type": "application/json"})
        answer = self._connection.getresponse()
        answer.read()
        return answer.status, str(answer.headers)

    def measure(self, body: bytes, creates: int) -> tuple[float, float]:
        """Return the API server's processor time for one create, and the time until its answer, in milliseconds."""
        idle = self._spent(lambda: time.sleep(2))
        busy = self._spent(lambda: [self.create(body) for _ in range(creates)])
        return 1000 * (busy[0] - idle[0] / idle[1] * busy[1]) / creates, 1000 * busy[1] / creates

    def _spent(self, act: Callable[[], object]) -> tuple[float, float]:
        began, before = time.perf_counter(), self._processor_seconds()
        act()
        return self._processor_seconds() - before, time.perf_counter() - began

    def _processor_seconds(self) -> float:
        with open(f"/proc/{self._pid}/stat", encoding="ascii") as stat:
            fields = stat.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS


def prepare(kubectl: Kubectl, cluster: Cluster) -> None:
    """Make the namespace, its queue, the classes, and the right to all of these but one."""
    create_namespace(kubectl, NAMESPACE)
    admin = kubectl.in_namespace(NAMESPACE)
    give_queue(admin, 4)
    member(cluster, kubectl, NAMESPACE, USER)
    classes = [f"class-{number:02}" for number in range(CLASSES)]
    of_kueue = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass"}
    of_pods = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
    for number, name in enumerate(classes):
        for head in (of_kueue, of_pods):
            admin.apply({**head, "metadata": {"name": name}, "value": number})
    rules = [
        {"apiGroups": [group], "resources": [plural], "resourceNames": classes[:-1], "verbs": ["use"]}
        for group, plural in (
            ("kueue.x-k8s.io", "workloadpriorityclasses"),
            ("scheduling.k8s.io", "priorityclasses"),
        )
    ]
    head = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "use"}}
    admin.apply(head | {"rules": rules})
    admin("create", "rolebinding", "use", "--role=use", f"--user={USER}")


def switch(kubectl: Kubectl, caller: Caller, *, on: bool) -> None:
    """Apply the overlay without the binding that opens it, or delete it, and wait until that is in force."""
    if on:
        kubectl("apply", "-k", OVERLAY)
        kubectl.delete("clusterrolebinding", "tutti-use-everything")
    else:
        kubectl("delete", "--ignore-not-found", "-k", OVERLAY)
    wanted = 403 if on else 201
    wait_until(lambda: caller.create(KINDS["is refused"])[0] == wanted, 60, "the overlay is in force, or gone")
    if on:
        warned = "may use WorkloadPriorityClass class-00"
        wait_until(lambda: warned in caller.create(KINDS["is refused"])[1], 60, "what may be used is told")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--creates", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    found: dict[tuple[str, bool], list[tuple[float, float]]] = {}
    with Cluster(Shape(nodes=1)) as cluster:
        Installation(cluster).install()
        kubectl = Kubectl(cluster.binaries["kubectl"], cluster.kubeconfig)
        prepare(kubectl, cluster)
        caller = Caller(cluster)
        for _ in range(arguments.rounds):
            for on in (False, True):
                switch(kubectl, caller, on=on)
                for kind, body in KINDS.items():
                    caller.measure(body, arguments.creates // 5)  # policies are compiled when they are first asked
                    found.setdefault((kind, on), []).append(caller.measure(body, arguments.creates))
    for kind in KINDS:
        print(f"a job that {kind}: {_told(found, kind)}")


def _told(found: Mapping[tuple[str, bool], list[tuple[float, float]]], kind: str) -> str:
    parts = []
    for which, what in enumerate(("processor", "answer")):
        without, beside = (statistics.median(each[which] for each in found[kind, on]) for on in (False, True))
        parts.append(f"{what} {without:.2f} -> {beside:.2f} ms (x {beside / without:.2f})")
    return ", ".join(parts)


if __name__ == "__main__":
    main()
