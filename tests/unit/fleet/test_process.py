"""The members of ``tutti hub`` come from a directory, as a mounted Secret has them, and follow it."""

import asyncio
import base64
import ssl
import time
from pathlib import Path
from random import Random
from typing import Any

import pytest
import trustme
import yaml
from cryptography.hazmat.primitives import serialization

from tests.unit.fleet.clusters import HUB_ACCOUNT, NAMESPACE, fleet, pytorch_job
from tests.unit.fleet.credentials.test_kubeconfig import good
from webhook.clock import ApiServersClock, LoopClock
from webhook.config import Config
from webhook.errors import WrongInput
from webhook.fleet import roster
from webhook.fleet.credentials.connection import reached
from webhook.fleet.hub import Hub
from webhook.fleet.roster import Roster, read
from webhook.jobs.kinds.registry import KINDS
from webhook.laboratory.simulated.cluster import SimulatedCluster
from webhook.laboratory.simulated.http import HttpFrontEnd
from webhook.processes import hub as process
from webhook.processes.hub import run_hub


def write(directory: Path, name: str, token: str = "abc", **user: Any) -> None:
    document = good()
    authority = trustme.CA().cert_pem.bytes()
    document["clusters"][0]["cluster"]["certificate-authority-data"] = base64.b64encode(authority).decode()
    document["users"][0]["user"] = {"token": token, **user}
    (directory / name).write_text(yaml.safe_dump(document))


def test_each_file_is_a_member_by_its_name(tmp_path: Path) -> None:
    write(tmp_path, "left")
    write(tmp_path, "right")
    (tmp_path / "..data").mkdir()
    (tmp_path / ".hidden").write_text("x")
    assert [*read(tmp_path)[0]] == ["left", "right"]


def test_every_member_that_is_wrong_is_said_by_name(tmp_path: Path) -> None:
    write(tmp_path, "left", exec={"command": "id"})
    write(tmp_path, "right", tokenFile="/token")
    found, refused = read(tmp_path)
    assert found == {}
    assert [problem.path for error in refused.values() for problem in error.problems] == [
        "member left: users[0].user.exec",
        "member right: users[0].user.tokenFile",
    ]


def test_a_directory_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(WrongInput, match="fleet_members"):
        read(tmp_path / "absent")
    assert read(tmp_path) == ({}, {}), "members may come later"


async def test_a_hub_without_members_does_not_start() -> None:
    with pytest.raises(WrongInput, match="fleet_members"):
        await run_hub(Config(), asyncio.Event(), lambda hub: None)


async def test_certificates_that_cannot_be_used_are_refused(tmp_path: Path) -> None:
    (tmp_path / "m").write_text(yaml.safe_dump(good()))
    with pytest.raises(WrongInput, match="cannot be used"):
        reached(read(tmp_path)[0]["m"])


async def test_a_client_certificate_is_taken_from_the_kubeconfig_and_leaves_no_file(tmp_path: Path) -> None:
    leaf = trustme.CA().issue_cert("hub.example.org")
    pair = {
        "client-certificate-data": base64.b64encode(leaf.cert_chain_pems[0].bytes()).decode(),
        "client-key-data": base64.b64encode(leaf.private_key_pem.bytes()).decode(),
    }
    write(tmp_path, "m", **pair)
    await reached(read(tmp_path)[0]["m"]).close()


async def test_a_key_that_needs_a_password_is_refused_and_nobody_is_asked_for_it(tmp_path: Path) -> None:
    leaf = trustme.CA().issue_cert("hub.example.org")
    key = serialization.load_pem_private_key(leaf.private_key_pem.bytes(), None)
    locked = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"secret")
    )
    pair = {
        "client-certificate-data": base64.b64encode(leaf.cert_chain_pems[0].bytes()).decode(),
        "client-key-data": base64.b64encode(locked).decode(),
    }
    write(tmp_path, "m", **pair)
    with pytest.raises(WrongInput, match="cannot be used"):
        reached(read(tmp_path)[0]["m"])


async def test_new_credentials_are_taken_and_hostile_ones_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(roster, "OLD_CONNECTION_SECONDS", 0.0)
    write(tmp_path, "m", "first")
    own = SimulatedCluster(Random(1)).api()
    hub = Hub(own, {}, KINDS, clock=LoopClock(), rng=Random(4))
    members = Roster(hub, tmp_path, reached)
    try:
        write(tmp_path, "m", "second")
        for informer in hub.set_up.informers.values():
            informer.synced.set()
        await members.look()
        assert members.known["m"].token == "second"
        write(tmp_path, "m", "third", exec={"command": "id"})
        await members.look()
        assert members.known["m"].token == "second"
    finally:
        await asyncio.sleep(0.1)
        await hub.fleet.members["m"].close()


async def test_the_process_places_a_job_over_tls_with_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And takes its API server's word of the time: its machine is an hour ahead."""
    monkeypatch.setattr(process, "ApiServersClock", lambda: ApiServersClock(wall=lambda: time.time() + 3600))
    authority = trustme.CA()
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(tls)
    (tmp_path / "members").mkdir()
    async with fleet("a", starts=False) as world:
        served = {}
        for side in (world.hub, *world.members.values()):
            served[side.name] = HttpFrontEnd(side.cluster.router, {f"token-{side.name}": HUB_ACCOUNT})
            await served[side.name].start(tls)
            document = good()
            document["clusters"][0]["cluster"] = {
                "server": served[side.name].url,
                "certificate-authority-data": base64.b64encode(authority.cert_pem.bytes()).decode(),
            }
            document["users"][0]["user"] = {"token": f"token-{side.name}"}
            where = tmp_path if side is world.hub else tmp_path / "members"
            (where / side.name).write_text(yaml.safe_dump(document))
        stop = asyncio.Event()
        config = Config(kubeconfig=tmp_path / "hub", fleet_members=tmp_path / "members", hide_neighbours=True)
        hubs: list[Hub] = []
        process_running = asyncio.create_task(run_hub(config, stop, hubs.append))
        try:
            await world.hub.cluster.create(pytorch_job(runtime="1s"))
            await world.until(lambda: world.over("PyTorchJob", "pytorch-test"), 60)
            assert await world.empty("PyTorchJob")
            said = {"reason": "Queued", "message": "behind team-secret/paper", "involvedObject": {"uid": "copy"}}
            head = {"apiVersion": "v1", "kind": "Event", "metadata": {"name": "said", "namespace": NAMESPACE}}
            await world.members["a"].cluster.create(head | said)
            told = await hubs[0].fleet.members["a"].told.why_waiting(NAMESPACE, "copy")
            assert told.why == "behind a job of another namespace", "as its configuration says"
            assert abs(hubs[0].fleet.clock.now() - time.time()) < 60
        finally:
            stop.set()
            await process_running
            for front in served.values():
                await front.close()
