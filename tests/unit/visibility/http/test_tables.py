"""Tables as kubectl prints them."""

import pytest

from tests.unit.visibility.documents.test_queues import seeds_tree
from tests.unit.visibility.world import NOW, World
from webhook.visibility.http.tables import COLUMNS, row, table
from webhook.wire.times import human_age

MINUTE, HOUR, DAY = 60, 3600, 86_400


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-3, "<invalid>"),
        (-1, "0s"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (121, "2m1s"),
        (10 * MINUTE, "10m"),
        (179 * MINUTE, "179m"),
        (3 * HOUR, "3h"),
        (3 * HOUR + 5 * MINUTE, "3h5m"),
        (47 * HOUR, "47h"),
        (2 * DAY, "2d"),
        (2 * DAY + HOUR, "2d1h"),
        (15 * DAY, "15d"),
        (729 * DAY, "729d"),
        (730 * DAY, "2y"),
        (800 * DAY, "2y70d"),
        (9 * 365 * DAY, "9y"),
    ],
)
def test_ages_are_written_as_kubectl_writes_them(seconds: float, text: str) -> None:
    assert human_age(seconds) == text


def headings(resource: str, *, wide: bool) -> list[str]:
    return [column.name.upper() for column in COLUMNS[resource] if wide or column.priority == 0]


def test_workloads_have_kueues_columns_and_more_of_them_when_wide() -> None:
    kueues = ["NAME", "QUEUE", "RESERVED IN", "ADMITTED", "FINISHED", "AGE"]
    assert headings("workloads", wide=False) == [*kueues, "REASON"]
    assert headings("workloads", wide=True) == [*kueues, "POSITION", "PODS", "PRIORITY", "REASON"]


def test_queues_have_name_and_age_unless_wide() -> None:
    assert headings("queues", wide=False) == ["NAME", "AGE"]


@pytest.mark.virtual_time
async def test_a_waiting_and_an_admitted_gang_fill_their_rows() -> None:
    world = World()
    world.admits(world.waits("first", cpu=3, pods=2, created=NOW - 300))
    world.waits("late", cpu=3, pods=1, priority=7)
    rows = [row("workloads", document, NOW, "None") for document in await world.documents("workloads")]
    assert [made["cells"][1:] for made in rows] == [
        ["jobs", "vision", "True", "", "5m", "", "0/2", 0, "WaitForStart"],
        ["jobs", "", "False", "", "0s", "1", "0/1", 7, "WaitingForQuota"],
    ]
    assert [made["object"] for made in rows] == [None, None]


@pytest.mark.virtual_time
async def test_the_seeds_queues_print_as_the_seed_expects() -> None:
    rows = [row("queues", document, NOW + DAY, "Metadata") for document in await seeds_tree().documents("queues")]
    shown = [[made["cells"][0], made["cells"][-1]] for made in table("queues", rows, 1)["rows"]]
    assert [age for _, age in shown] == ["15d", "15d"]
    assert [name.startswith(("root-", "root-child-2-")) for name, _ in shown] == [True, True]
    assert rows[0]["object"]["kind"] == "PartialObjectMetadata"
