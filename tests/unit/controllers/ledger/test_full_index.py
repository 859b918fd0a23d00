"""An index that claims fill to the brim: pages come to be all the same, and no term ends for it."""

import asyncio
from dataclasses import replace

import pytest

from tests.unit.controllers.ledger.keepers import PATH, LossyApi, Stage, elect, reservation
from webhook.controllers.ledger.keeper import LedgerKeeper
from webhook.controllers.ledger.stored import project
from webhook.core.ledger import beside
from webhook.core.ledger import text as ledger_text
from webhook.core.ledger.record import Claim
from webhook.laboratory.simulated.objects import validation

pytestmark = [pytest.mark.virtual_time, pytest.mark.usefixtures("small_pages")]
BYTES_MAX = 8_000
MANY = {f"claim-{number:02}": Claim(reservation(f"claim-{number:02}"), ("victim",)) for number in range(60)}
"""More than find room."""


@pytest.fixture(autouse=True)
def _small_config_maps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the API server refuse a ConfigMap that is a hundredth of what it may be."""
    monkeypatch.setattr(ledger_text, "BYTES_MAX", BYTES_MAX)
    monkeypatch.setattr(validation, "MAX_CONFIGMAP_BYTES", BYTES_MAX)


async def free_bytes(stage: Stage) -> int:
    return BYTES_MAX - ledger_text.size_bytes(project(await stage.admin.request("GET", PATH)).data)


async def brimful(stage: Stage) -> tuple[LedgerKeeper, LossyApi, dict[str, Claim]]:
    """Return a leader of an index in which not a byte more finds room, and its claims."""
    keeper, api = await stage.leader()
    for number in range(6):
        await keeper.commit([reservation(f"gang-{number}")])
    assert keeper.ledger is not None
    assert keeper.ledger.pages
    await keeper.commit(claims=MANY)
    claims = dict(keeper.ledger.claims)
    assert 0 < len(claims) < len(MANY), "as many as fit"
    last, spare = max(claims), beside.meta_bytes(keeper.ledger.pages)
    left = await free_bytes(stage) + len(project(await stage.admin.request("GET", PATH)).data["meta"]) + 4 - spare
    claims[last] = replace(claims[last], awaits=("v" * (len("victim") + left),))
    await keeper.commit(claims=claims)
    assert keeper.ledger.claims == claims, "all of them fit, and nothing beside them"
    return keeper, api, claims


async def test_more_pages_come_to_be_beside_an_index_that_is_full_of_claims(stage: Stage) -> None:
    """Their list made it longer than an object may be: each term ended at that write, whoever led."""
    keeper, _, claims = await brimful(stage)
    await keeper.commit([reservation(f"more-{number}") for number in range(12)], claims=claims)
    assert keeper.ledger is not None
    stored = (await stage.stored()).claims
    assert 0 < len(stored) < len(claims)
    assert keeper.claims == claims, "what found no room is remembered"
    for _ in range(30):
        await asyncio.sleep(2)
        await keeper.renew()
        await keeper.commit(claims=claims)
    assert await free_bytes(stage) >= 0


async def test_pages_that_come_to_be_after_a_take_over_leave_the_claims_that_were_taken_over_as_they_were(
    stage: Stage,
) -> None:
    keeper, _, claims = await brimful(stage)
    await keeper.step_down()
    new, _ = stage.keeper("new")
    await elect(new)
    await new.commit([reservation(f"more-{number}") for number in range(12)])
    assert new.claims == claims


async def test_what_is_dropped_in_the_same_commit_makes_room_for_claims_only_once_it_is(stage: Stage) -> None:
    """It is written after what takes, the claims among that: the object was too long in between."""
    keeper, _, claims = await brimful(stage)
    await keeper.commit([reservation(f"more-{n}") for n in range(6)], drop=["gang-0", "gang-1"], claims=claims)
    assert keeper.ledger is not None
    assert (await stage.stored()).claims == keeper.ledger.claims
    assert keeper.claims == claims


async def test_a_renewal_that_would_make_the_index_too_long_renews_the_lease_alone(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An earlier release left no room for what it says of pages: the next commit makes some."""
    keeper, _, claims = await brimful(stage)
    full = BYTES_MAX - await free_bytes(stage)
    monkeypatch.setattr(ledger_text, "BYTES_MAX", full)
    monkeypatch.setattr(validation, "MAX_CONFIGMAP_BYTES", full)
    assert keeper.ledger is not None
    # After as many writes of a page the number of the last is longer.
    page = next(iter(keeper.ledger.pages))
    keeper._witness.stored(page, 10**6, {})
    lease = project(await stage.admin.request("GET", PATH)).lease
    await asyncio.sleep(2)
    await keeper.renew()
    assert project(await stage.admin.request("GET", PATH)).lease != lease
    await keeper.commit(claims=claims)
    assert 0 < len((await stage.stored()).claims) < len(claims)
    assert (await stage.stored()).seen
