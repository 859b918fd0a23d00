"""What a list of a policy object may hold bounds what reading it costs."""

from webhook.core.notation.problem import Problem
from webhook.dialects.field import Field


def test_a_list_that_is_too_long_is_an_error_and_is_read_no_further_than_it_may_be_long() -> None:
    """A few thousand resource groups held the loop for a tenth of a second."""
    problems: list[Problem] = []
    field = Field([0] * 10_000, "/spec/resourceGroups", problems)
    assert [item.path for item in field.items(most=2)] == ["/spec/resourceGroups/0", "/spec/resourceGroups/1"]
    (problem,) = problems
    assert (problem.why, problem.warning) == ("has 10000 entries", False)
    assert len(list(Field([0] * 3, "/x", []).items())) == 3
