"""A gang that would delay a head on one flavor takes another as soon as that is free."""

from tests.unit.core.worlds import LABELS, cohort, gang, group, policy, queue
from webhook.core.model.policy import Strategy
from webhook.core.quota.fences import Fences
from webhook.core.scheduler.engine import Engine


def test_who_would_delay_a_head_is_decided_about_again_as_room_of_another_flavor_becomes_free() -> None:
    """In whatever namespace."""
    borrows = queue("r", None, group(spot={"cpu": 0}, own={"cpu": 4}), cohort="c")
    lends = queue("q", None, group(spot={"cpu": 12}), cohort="c", strategy=Strategy.BACKFILL)
    made, other = Engine(), {"kubernetes.io/metadata.name": "other"}
    made.set_policy(policy(cohort("c"), lends, borrows), {**LABELS, "other": other}, 0.0)

    def admitted(now: float) -> list[str]:
        return [each.name for each in made.cycle(now, Fences(), epoch=1).admitted]

    made.submit(gang("long", "q", cpu=8, max_run_seconds=1000), 0.0)
    made.submit(gang("1st", "r", cpu=4, namespace="other"), 0.0)
    made.submit(gang("2nd", "r", cpu=4, namespace="other"), 0.0)
    assert set(admitted(0.0)) == {"long", "1st", "2nd"}
    made.release("1st")
    made.submit(gang("head", "q", pods=12, max_run_seconds=1000), 1.0)
    made.submit(gang("waits", "r", cpu=4, created=1.0, max_run_seconds=5000), 1.0)
    assert admitted(1.0) == []
    made.release("2nd")
    assert admitted(2.0) == ["waits"]
