"""The other replicas, from EndpointSlices."""

import asyncio
from random import Random

import orjson
import pytest

from webhook.assembly.webhook import webhook
from webhook.clock import LoopClock
from webhook.config import Config
from webhook.laboratory.simulated.cluster import SimulatedCluster
from webhook.laboratory.simulated.requests.router import Answer, Request
from webhook.server.sharding.forward import Forwarder
from webhook.server.sharding.hop import HopKeys
from webhook.server.sharding.ownership import Ownership, owner_of
from webhook.server.sharding.peers import ServicePeers, decode


def slice_of(*endpoints: dict[str, object], address_type: str = "IPv4") -> bytes:
    metadata = {"uid": "u", "namespace": "tutti-system", "name": "tutti-webhook-x", "resourceVersion": "5"}
    return orjson.dumps(
        {
            "metadata": metadata,
            "addressType": address_type,
            "ports": [{"name": "https", "port": 9443}],
            "endpoints": list(endpoints),
        }
    )


def endpoint(name: str, address: str, **conditions: bool) -> dict[str, object]:
    return {"addresses": [address], "targetRef": {"kind": "Pod", "name": name}, "conditions": conditions}


def test_replicas_are_named_by_their_pods() -> None:
    """A pod's name is the identity that each replica knows itself by."""
    raw = slice_of(endpoint("a", "10.0.0.1"), endpoint("b", "10.0.0.2", ready=False, serving=True))
    assert decode(raw).replicas == {"a": "https://10.0.0.1:9443", "b": "https://10.0.0.2:9443"}


def test_what_is_known_not_to_serve_is_left_out() -> None:
    """A pod that has ended, and an endpoint that is no pod."""
    raw = slice_of(endpoint("a", "10.0.0.1", serving=False), {"addresses": ["10.0.0.9"]})
    assert decode(raw).replicas == {}


def test_addresses_of_the_newer_protocol_are_bracketed() -> None:
    """A URL needs them."""
    assert decode(slice_of(endpoint("a", "fd00::1"), address_type="IPv6")).replicas == {"a": "https://[fd00::1]:9443"}


class Silent(Forwarder):
    """Finds nobody alive, and asks no sockets."""

    async def _healthy(self, url: str) -> bool:
        return False


@pytest.mark.virtual_time
async def test_a_replica_has_met_the_others_only_once_it_has_read_which_there_are() -> None:
    """Before, it would take all namespaces for its own, and grant what others grant too."""
    async with SimulatedCluster(Random(1), namespaces=("tutti-system",)) as cluster:
        unanswered = asyncio.Event()
        handle = cluster.router.handle

        async def slow(request: Request) -> Answer:
            if request.path.endswith("endpointslices"):
                await unanswered.wait()
            return await handle(request)

        cluster.router.handle = slow  # type: ignore[method-assign]
        peers = ServicePeers(cluster.api(), "tutti-system", "tutti-webhook", Random(1))
        forwarder = Silent(Ownership("a", joining=True), peers)
        running = [asyncio.create_task(each.run()) for each in (peers, forwarder)]
        await asyncio.sleep(20)
        assert not forwarder.met
        unanswered.set()
        await asyncio.sleep(20)
        assert forwarder.met
        for task in running:
            task.cancel()


@pytest.mark.virtual_time
async def test_a_replica_that_may_not_read_which_there_are_goes_on_alone() -> None:
    async with SimulatedCluster(Random(1), namespaces=("tutti-system",)) as cluster:
        cluster.router.unlistable.add("endpointslices.discovery.k8s.io")
        peers = ServicePeers(cluster.api(), "tutti-system", "tutti-webhook", Random(1))
        forwarder = Silent(Ownership("a", joining=True), peers)
        running = [asyncio.create_task(each.run()) for each in (peers, forwarder)]
        await asyncio.sleep(60)
        assert forwarder.met
        for task in running:
            task.cancel()


@pytest.mark.virtual_time
@pytest.mark.parametrize("known", [None, {}], ids=["not read yet", "read, and there are none"])
async def test_a_replica_is_ready_once_it_has_read_which_others_there_are(known: dict[str, str] | None) -> None:
    async with SimulatedCluster(Random(1), namespaces=("tutti-system",)) as cluster:
        parts = webhook(
            cluster.api(),
            Config(),
            identity="a",
            clock=LoopClock(),
            rng=Random(1),
            peers=lambda: known,
            forwarder=Silent,
        )
        running = asyncio.create_task(parts.run())
        await asyncio.sleep(20)
        assert parts.view.synced
        assert parts.problems() == ([] if known is not None else ["the list of replicas has not been read yet"])
        running.cancel()


@pytest.mark.virtual_time
async def test_a_replica_joins_and_settles_with_the_first_review_that_another_passes_to_it() -> None:
    """From then on there are namespaces that nobody else decides for."""
    mine = Ownership("a", started_seconds=0.0, joining=True)
    forwarder = Silent(mine, dict)
    forwarder.hop.renew(b"serving key")
    mine.set_live({"b"}, 1.0)
    namespace = next(name for name in map("team-{}".format, range(30)) if owner_of(name, "ab") == "a")
    await asyncio.sleep(60)
    assert not forwarder.takes("forged", "/validate/pods", b"{}")
    assert mine.owner(namespace) == "b"
    assert forwarder.takes(HopKeys(b"serving key").header("/validate/pods", b"{}"), "/validate/pods", b"{}")
    assert mine.owner(namespace) == "a"
    assert mine.unsettled_seconds(namespace, asyncio.get_running_loop().time()) == 0.5
