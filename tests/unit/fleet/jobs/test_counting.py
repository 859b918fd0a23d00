"""What ``tutti hub`` counts: each offer and each grant once, when it is over, and who does not answer."""

import asyncio

import pytest
from prometheus_client import REGISTRY

from tests.unit.fleet.clusters import fleet, pytorch_job
from webhook.core.fleet.dispatch import Dispatch
from webhook.fleet.jobs.counting import count

pytestmark = pytest.mark.virtual_time
NOWHERE = Dispatch()
OFFERED = NOWHERE.offered(1, "counted", "uid")
GRANTED = OFFERED.granted("copy", "7")
RECORDS = {
    "an offer is made": (NOWHERE, OFFERED, {}),
    "why it waits changes": (OFFERED, OFFERED, {}),
    "an offer is granted": (OFFERED, GRANTED, {"offers granted": 1}),
    "an offer is moved": (OFFERED, OFFERED.offered(1, "other", "uid"), {"offers moved": 1}),
    "an offer is withdrawn": (OFFERED, OFFERED.withdrawn("x"), {"offers withdrawn": 1}),
    "a gang is over": (GRANTED, GRANTED.recalled("x"), {"grants ended": 1}),
    "a gang has failed": (GRANTED, GRANTED.failed_over("x"), {"grants failed": 1}),
    "nothing is left of it": (GRANTED.recalled("x"), NOWHERE, {}),
}


def counted(member: str) -> dict[str, float]:
    return {
        f"{name} {sample.labels['outcome']}": sample.value
        for name in ("offers", "grants")
        for family in REGISTRY.collect()
        if family.name == f"tutti_fleet_{name}"
        for sample in family.samples
        if sample.labels["member"] == member and sample.name.endswith("_total")
    }


@pytest.mark.parametrize("case", RECORDS)
def test_an_offer_and_a_grant_are_counted_when_they_are_over(case: str) -> None:
    before, after, expected = RECORDS[case]
    then = counted("counted")
    count(before, after)
    now = counted("counted")
    assert {key: now[key] - then.get(key, 0) for key in now if now[key] != then.get(key, 0)} == expected


async def test_a_hub_counts_what_it_places_and_says_who_does_not_answer() -> None:
    def unreachable() -> float | None:
        return REGISTRY.get_sample_value("tutti_fleet_member_unreachable", {"member": "seen"})

    then = counted("seen")
    async with fleet("seen") as world:
        await world.hub.cluster.create(pytorch_job(runtime="1s"))
        await world.until(lambda: world.over("PyTorchJob", "pytorch-test"))
        assert unreachable() == 0
        world.links["seen"].sever()
        await asyncio.sleep(30)
        assert unreachable() == 1
    now = counted("seen")
    assert {key: now[key] - then.get(key, 0) for key in now} == {"offers granted": 1, "grants ended": 1}
