"""A PodGroup of thousands of plain pods is read a few times, however many of them change."""

import asyncio

import pytest

from webhook.cluster.gathering import FEW, Gathering, Group

pytestmark = pytest.mark.virtual_time
RING: Group = ("team-a", "ring")


async def test_a_process_that_is_told_of_thousands_one_after_another_reads_them_a_few_times() -> None:
    """Five thousand were read five thousand times over: minutes in which a new process did nothing else."""
    read: list[int] = []
    told = 0
    gathering = Gathering(lambda group: read.append(told))
    for number in range(1, 5_001):
        told = number
        gathering.changed(RING, number)
    await asyncio.sleep(5)
    assert len(read) <= FEW + 1
    assert read[-1] == told


async def test_pods_that_change_all_the_time_are_read_once_in_a_rest_that_grows_with_their_number() -> None:
    for pods, most in ((100, 51), (5_000, 2)):
        read: list[Group] = []
        gathering = Gathering(read.append)
        for _ in range(1_000):
            gathering.changed(RING, pods)
            await asyncio.sleep(0.001)
        assert 1 <= len(read) + 1 <= most


async def test_a_small_group_is_read_at_once_beside_a_large_one() -> None:
    read: list[Group] = []
    gathering = Gathering(read.append)
    gathering.changed(RING, 5_000)
    gathering.changed(("team-b", "pair"), 2)
    assert read == [("team-b", "pair")]
    await asyncio.sleep(2)
    assert read == [("team-b", "pair"), RING]
