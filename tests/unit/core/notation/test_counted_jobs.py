"""A limit on jobs is a pseudo-resource to the engine, and a number of jobs to people."""

import pytest

from webhook.core.notation.counted_jobs import WHICH, amount_text, resource_text
from webhook.core.notation.names import MAX_JOBS
from webhook.core.reasons.reasons import Code, Holder, Reason


@pytest.mark.parametrize("resource", WHICH)
def test_a_reason_speaks_of_jobs(resource: str) -> None:
    holder = Holder("team-a/train", 1000)
    said = str(
        Reason(
            Code.WAITING_FOR_QUOTA,
            where="queue research",
            resource=resource,
            asked=1000,
            used=3000,
            limit=3000,
            holders=(holder,),
        )
    )
    assert said == f"asks for 1 job{WHICH[resource]}; queue research has 3, 3 used; held by team-a/train (1)"
    assert resource not in resource_text(resource)


def test_other_resources_keep_their_names() -> None:
    assert amount_text(2000, "nvidia.com/gpu") == "2 nvidia.com/gpu"
    assert amount_text(500, "") == "0.5"
    assert resource_text("cpu") == "cpu"
    assert amount_text(3000, MAX_JOBS) == "3 jobs"
