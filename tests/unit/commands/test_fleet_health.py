"""``tutti status`` in a hub: which member does not answer, and whether ``tutti hub`` runs."""

import base64
from typing import Any

import orjson
import pytest
import yaml

from tests.unit.commands.test_amc import CLUSTERS, member
from tests.unit.commands.test_status import DEPLOYMENTS, answers
from tests.unit.commands.test_views import Answers
from tests.unit.kube.fake_api import FakeApi
from tests.unit.visibility.world import NOW, World
from webhook.commands import fleet
from webhook.commands.show import fleet_health, health
from webhook.core.notation import names
from webhook.errors import NotFound, TuttiError, Unavailable, WrongName
from webhook.fleet.credentials.kubeconfig import Account
from webhook.kube.election import LeaderRecord, render
from webhook.wire.times import micro_time_text

pytestmark = pytest.mark.virtual_time
SECRET = "/api/v1/namespaces/tutti-system/secrets/tutti-hub-members"
LOST = "/api/v1/namespaces/tutti-system/configmaps/tutti-fleet-lost"
LEASE = LeaderRecord("one", 5.0, "then", micro_time_text(NOW), 1)


def secret(**members: dict[str, Any]) -> dict[str, Any]:
    return {"data": {name: base64.b64encode(yaml.safe_dump(each).encode()).decode() for name, each in members.items()}}


def hub(**changed: Any) -> Answers:
    """A hub of two members, one of which is called ``silent``."""
    members = secret(left=member("left"), right=member("silent"))
    return Answers(**{fleet_health.HUB: {}, SECRET: members, CLUSTERS: {"items": []}, **changed})


class Member(FakeApi):
    """A member that answers, unless it is silent."""

    def __init__(self, account: Account) -> None:
        super().__init__()
        self._server, self._silent = account.server, "silent" in account.server

    async def request(self, method: str, path: str, **how: Any) -> bytes:
        if self._silent:
            raise Unavailable(0, "ConnectionFailed", "connection refused")
        if path == "/version":
            return b"{}"
        assert path.endswith("/configmaps/tutti-ledger")
        if "idle" in self._server:
            raise NotFound(404, "NotFound", "configmaps tutti-ledger not found")
        return orjson.dumps({"metadata": {"annotations": {names.LEASE_ANNOTATION: render(LEASE)}}})


async def told(api: Answers, now: float = NOW) -> list[tuple[bool, str]]:
    return [(found.well, found.text) for found in await fleet_health.look(api, now, Member)]  # type: ignore[arg-type]


async def test_each_member_is_asked_and_one_that_does_not_answer_is_wrong() -> None:
    assert await told(hub()) == [
        (True, "left answers"),
        (False, "right does not answer: ConnectionFailed: connection refused"),
    ]


async def test_a_member_whose_tutti_does_not_lead_is_wrong() -> None:
    """Its API server answers, and what is offered to it starts nothing."""
    two = secret(left=member("left"), right=member("idle"))
    (left, right) = await told(hub(**{SECRET: two}))
    assert left == (True, "left answers")
    assert not right[0]
    assert right[1].startswith("right answers, and starts nothing: NoLedger: ")
    assert (await told(hub(**{SECRET: two}), NOW + 20))[0][0], "another may be about to lead"
    ((well, text), _) = await told(hub(**{SECRET: two}), NOW + 60)
    assert not well
    assert text.startswith("left answers, and starts nothing: no replica leads: the lease of one expired ")


async def test_a_member_that_was_declared_lost_is_named() -> None:
    noted = {"data": {"gone": "2026-11-28T15:30:39Z"}}
    assert (True, "gone was declared lost at 2026-11-28T15:30:39Z") in await told(hub(**{LOST: noted}))


async def test_a_kubeconfig_that_would_run_something_is_told_and_not_used() -> None:
    both = secret(left=member("left", exec={}), right=member("right"))
    (well, text), other = await told(hub(**{SECRET: both}))
    assert not well
    assert text.startswith("left cannot be asked: kubeconfig: ")
    assert "would run a command" in text
    assert other == (True, "right answers"), "it hides no other"


async def test_where_no_hub_is_nothing_is_said_of_members() -> None:
    assert await told(Answers()) == []


async def test_a_hub_without_a_ready_pod_is_wrong() -> None:
    down = {"spec": {"replicas": 1}, "status": {}}
    seen = await answers(World(), **{fleet_health.HUB: {}, f"{DEPLOYMENTS}/tutti-hub": down})
    found = {each.what: each for each in await health.look(seen, NOW)}  # type: ignore[arg-type]
    assert found["hub"] == ("hub", False, "0 of 1 replicas are ready")
    assert not found["members"].well, "and nobody can say which members it has"


async def test_a_name_that_is_no_members_is_no_reason_to_remove_one() -> None:
    with pytest.raises(WrongName, match=r"leftt is no member, the hub has left, right; if it was one, add --force"):
        await fleet._is_known(hub(), "leftt")  # type: ignore[arg-type]
    await fleet._is_known(hub(), "left")  # type: ignore[arg-type]
    with pytest.raises(TuttiError, match="is this the hub"):
        await fleet._is_known(Answers(**{CLUSTERS: {"items": []}}), "left")  # type: ignore[arg-type]
