"""Questions why gangs wait have no effect on decisions, whatever is looked at on nodes to answer them."""

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.core.scheduler.test_node_turns import Crowd, two_shapes
from tests.unit.core.worlds import gang
from webhook.core.model.gang import PodPrice, PodSet
from webhook.core.nodes import capacity, turns
from webhook.core.nodes.node import Bound


@pytest.fixture(autouse=True)
def few() -> Iterator[None]:
    """A round looks at four new shapes at ten nodes, eight are kept, and three changes of nodes are not counted."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(turns, "ROUND_VISITS", 40)
        patch.setattr(turns, "ROUND_SHAPES", 4)
        patch.setattr(capacity, "SHAPES_MAX", 8)
        patch.setattr(capacity, "CHANGES_UNCOUNTED", 3)
        yield


EVENTS = st.tuples(
    st.sampled_from(["submit", "submit", "withdraw", "use", "use", "free", "cycle"]), st.integers(1, 60), st.booleans()
)


def happens(world: Crowd, event: str, chosen: int, step: int) -> object:
    match event:
        case "submit":
            sets = (PodSet("a", 1 + chosen % 3, PodPrice({"cpu": 100 * chosen})), two_shapes("b"))
            how = {"created": world.now, "priority": chosen % 4}
            world.engine.submit(gang(f"gang{step}", "q", pod_sets=sets[: 1 + chosen % 2], **how), world.now)
        case "withdraw":
            for number in range(chosen % 7, step, 7):
                world.engine.withdraw(f"gang{number}")
                world.engine.release(f"gang{number}")
        case "use":
            for number in range(chosen, chosen + chosen % 4):
                world.nodes.bind(f"pod{number % 13}", Bound(f"n{number % 10}", {"cpu": 100 * (chosen % 30)}))
        case "free":
            world.nodes.unbind(f"pod{chosen % 13}")
            world.engine.wake_nodes()
        case _:
            return world.cycle()
    return None


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(events=st.lists(EVENTS, min_size=10, max_size=50))
def test_whatever_is_asked_while_pods_come_and_go_the_same_is_decided(events: list[tuple[str, int, bool]]) -> None:
    quiet, asked = Crowd(3), Crowd(3)
    for step, (event, chosen, asks) in enumerate((*events, *[("cycle", 0, True)] * 10)):
        assert happens(quiet, event, chosen, step) == happens(asked, event, chosen, step)
        assert quiet.engine.next_wake(quiet.now) == asked.engine.next_wake(asked.now)
        assert quiet.engine.undecided() == asked.engine.undecided()
        for waiting in asked.engine.waiting() if asks else ():
            asked.engine.reason(waiting.uid)
