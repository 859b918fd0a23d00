"""The demo tells what was seen and nothing else."""

from webhook.laboratory.demo.summary import Summary
from webhook.laboratory.demo.watching import Gang, Picture, Queue, State


def gang(name: str, state: State, *, pods: int = 0, reason: str = "", stopped_for: str = "") -> Gang:
    running = pods if state == "running" else 0
    reserved = 8 if state in ("starting", "running", "stopping") else 0
    return Gang("team", name, "vision", 8, 8, state, reserved, pods, running, reason, stopped_for)


def picture(*gangs: Gang) -> Picture:
    return Picture((Queue("vision", 4, sum(g.reserved for g in gangs), 0),), gangs)


def test_a_gang_that_waited_is_told_with_its_seconds_and_its_pods() -> None:
    summary = Summary()
    assert "submitted: 8 pods, 8 GPUs" in summary.see(picture(gang("a", "waiting")), 0.0)[0]
    assert "waits: no room" in summary.see(picture(gang("a", "waiting", reason="no room")), 2.0)[0]
    assert summary.see(picture(gang("a", "waiting", reason="no room")), 2.1) == []
    summary.see(picture(gang("a", "starting")), 10.0)
    summary.see(picture(gang("a", "running", pods=8)), 11.0)
    summary.see(picture(gang("a", "finished")), 20.0)
    told = summary.sentences(16, 20.0)
    assert "team/a waited 10 s, and not one of its pods existed before all 8 could run." in told
    assert "Queue vision borrowed up to 4 GPUs that the other team did not use." in told
    assert told[-1].startswith("1 of 1 gangs finished in 20 s; at no moment were more than 8 of 16 GPUs")
    assert summary.over(1)
    assert summary.succeeded


def test_a_pod_before_its_gang_was_admitted_is_not_hidden() -> None:
    summary = Summary()
    summary.see(picture(gang("a", "waiting", pods=3)), 0.0)
    summary.see(picture(gang("a", "running", pods=8)), 5.0)
    summary.see(picture(gang("a", "finished")), 9.0)
    assert "3 of its pods existed before all 8" in " ".join(summary.sentences(16, 9.0))
    assert not summary.succeeded


def test_a_gang_that_was_stopped_is_told_with_the_reason_even_when_the_reason_comes_later() -> None:
    summary = Summary()
    summary.see(picture(gang("a", "running", pods=8)), 0.0)
    assert summary.see(picture(gang("a", "stopping", pods=8)), 1.0)[0].endswith("is stopped whole")
    assert summary.see(picture(gang("a", "waiting", stopped_for="for b")), 2.0)[0].endswith("waits again, at its place")
    summary.see(picture(gang("a", "running", pods=8)), 3.0)
    summary.see(picture(gang("a", "failed")), 4.0)
    assert "team/a was stopped whole (for b), kept its place" in " ".join(summary.sentences(16, 4.0))
    assert summary.over(1)
    assert not summary.succeeded


def test_the_play_is_not_over_before_every_gang_has_ended() -> None:
    summary = Summary()
    summary.see(picture(gang("a", "finished"), gang("b", "running", pods=8)), 0.0)
    assert not summary.over(2)
    assert not summary.over(3)
