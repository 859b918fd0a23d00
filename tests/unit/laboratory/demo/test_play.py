"""The teams' manifests are found, understood and applied in memory; what is there already is left alone."""

import tempfile
from random import Random

import pytest

from webhook.controllers.reporting import registration_faults
from webhook.laboratory.demo import files, play, stages
from webhook.laboratory.demo.watching import Watcher
from webhook.laboratory.simulated.cluster import SimulatedCluster


def test_each_team_has_its_own_half_of_the_gpus() -> None:
    queues = play.queues_of(files.teams("quota"))
    assert queues == {"team-vision": ("vision", 8), "team-speech": ("speech", 8)}
    assert sum(nominal for _, nominal in queues.values()) == play.GPUS


def test_every_object_that_the_demo_applies_has_a_path() -> None:
    documents = [*files.teams("quota"), *registration_faults.shipped()]
    documents += [document for _, scene in play.SCENES for document in files.teams(scene)]
    assert all(play.collection(document).startswith("/api") for document in documents)


async def test_without_a_folder_to_write_in_the_demo_says_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/proc/nowhere")
    with pytest.raises(stages.StageError, match="TMPDIR"):
        await stages.on_simulated()


@pytest.mark.virtual_time
async def test_the_demo_registers_what_ships_so_that_its_reconciler_finds_no_fault() -> None:
    async with SimulatedCluster(Random(1)) as cluster:
        await stages.register(cluster.api(), b"an authority")
        assert await registration_faults.look(cluster.api()) == []


@pytest.mark.virtual_time
async def test_what_is_there_already_is_named_and_left_alone() -> None:
    async with SimulatedCluster(Random(1), namespaces=["team-speech"]) as cluster:
        with pytest.raises(play.SetUpError, match="Namespace team-speech is there already"):
            await play.perform(cluster.api(), 1.0, lambda: None, tidy=True)
        left = [stored.key[1] for stored in cluster.server.store.items(("", "namespaces"), "")]
        assert "team-speech" in left
        assert "team-vision" not in left


@pytest.mark.virtual_time
async def test_a_job_that_nobody_admits_is_seen_waiting_without_pods() -> None:
    async with SimulatedCluster(Random(1), namespaces=["tutti-system"]) as cluster:
        for document in files.teams("quota"):
            await cluster.create(document)
        job = files.teams("vision-jobs")[0]
        job["spec"]["suspend"] = True
        await cluster.create(job)
        watcher = Watcher(cluster.api(), play.queues_of(files.teams("quota")))
        tasks = await watcher.follow()
        seen = watcher.look()
        for task in tasks:
            task.cancel()
        assert [(gang.key, gang.state, gang.pods) for gang in seen.gangs] == [
            ("team-vision/detector-sweep", "waiting", 0)
        ]
        assert [(queue.name, queue.nominal, queue.reserved, queue.waiting) for queue in seen.queues] == [
            ("vision", 8, 0, 1),
            ("speech", 8, 0, 0),
        ]
