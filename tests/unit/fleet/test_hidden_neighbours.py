"""Where a hub hides neighbours, what its members say names none of theirs, whether they hide them or not."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.kube.fake_api import FakeApi
from webhook.core.reasons.neighbours import SOMEBODY
from webhook.fleet.members.member import Member
from webhook.fleet.members.told import REASON_CHARACTERS

OTHERS = ("team-secret", "x", "another-team-with-a-long-name")
JOBS = ("paper", "merger-2027", "a.b")


class Saying(FakeApi):
    """Says why a copy waits."""

    def __init__(self, why: str) -> None:
        super().__init__()
        self.why = why

    async def request(self, method: str, path: str, **how: Any) -> bytes:
        self._arrived()
        assert (method, path) == ("GET", "/api/v1/namespaces/team-a/events")
        return json.dumps(
            {"metadata": {}, "items": [{"message": self.why, "lastTimestamp": "2026-11-24T00:00:00Z"}]}
        ).encode()


async def heard(why: str, *, hides: bool) -> str:
    return (await Member("a", Saying(why), hides_neighbours=hides).told.why_waiting("team-a", "uid")).why


words = st.sampled_from(("asks for 4 nvidia.com/gpu;", "queue research has 8, 4/8 used;", "team-a/mine 2,", "behind"))
named = st.builds("{}/{}".format, st.sampled_from(OTHERS), st.sampled_from(JOBS))


@given(st.lists(words | named, max_size=30))
async def test_no_name_is_told_wherever_the_text_is_cut(said: list[str]) -> None:
    told = await heard(" ".join(said), hides=True)
    assert len(told) <= REASON_CHARACTERS
    rest = told.replace(SOMEBODY, "").replace("nvidia.com/gpu", "").replace("team-a/mine", "")
    assert not any(name in rest for name in (*(f"{other}/" for other in OTHERS), "team-secret", "paper", "merger"))


async def test_amounts_queues_and_jobs_of_ones_own_stay() -> None:
    why = "asks for 4 nvidia.com/gpu; queue research has 8, 4/8 used by team-a/mine 2, team-secret/paper 2"
    assert await heard(why, hides=True) == why.replace("team-secret/paper", SOMEBODY)
    assert await heard(why, hides=False) == why
