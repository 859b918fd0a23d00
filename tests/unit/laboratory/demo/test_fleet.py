"""The demo of a fleet: each gang whole in one member, and each line that its reader is promised."""

import pytest

from webhook.clock import LoopClock
from webhook.laboratory.demo import fleet


@pytest.mark.virtual_time
async def test_a_gang_passes_the_full_member_waits_for_a_slot_and_moves_there(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert await fleet.play(LoopClock()) == 0
    told = capsys.readouterr().out
    assert "train ran whole in south, and nowhere else" in told
    assert "tune ran whole in west, and nowhere else" in told
    assert "is offered to south (north says WaitingForQuota: asks for 4 nvidia.com/gpu; queue gpus has 4" in told
    runs, ends = (told.index(text) for text in ("evaluate   runs with all 4 pods in south", "train      has ended"))
    assert ends < runs, "it moves to where a slot has come free"
