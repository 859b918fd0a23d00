"""Which ports of its node a pod takes: kube-scheduler binds no two pods with the same port to a node (NodePorts).

Addresses are not distinguished: a port of one address counts as the port of all.
"""

from collections.abc import Mapping
from itertools import islice
from typing import Any, Final

from webhook.untyped.values import mappings

PORTS_MAX: Final = 64
"""Looked at of one pod."""
_LARGEST: Final = 65_535
_OTHERS: Final = ("UDP", "SCTP")


def host_ports(spec: Mapping[str, Any], opened: int | None = None) -> tuple[str, ...]:
    """Return the ports (``TCP/29500``) that a pod of ``spec`` takes of its node, in order; ``opened`` is one more that
    it has.

    A pod on its node's network has there every port that it names: the API server writes that into pods, and into
    templates of its own kinds only.
    """
    on_node = spec.get("hostNetwork") is True
    found = {f"TCP/{opened}": None} if on_node and opened is not None else {}
    for port in islice(ports_of(spec), PORTS_MAX):
        number = port.get("hostPort") or (port.get("containerPort") if on_node else None)
        if type(number) is int and 0 < number <= _LARGEST:
            protocol = port.get("protocol")
            found[f"{protocol if protocol in _OTHERS else 'TCP'}/{number}"] = None
    return tuple(sorted(found))


def ports_of(spec: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the ports that are named by what runs as long as the pod: its containers, and sidecars."""
    named: list[Mapping[str, Any]] = []
    for field in ("containers", "initContainers"):
        for container in mappings(spec.get(field)):
            if "ports" in container and (field == "containers" or container.get("restartPolicy") == "Always"):
                named += mappings(container["ports"])
    return named
