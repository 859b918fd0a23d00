"""How long is looked: a few examples, always the same, in ``make test``; rounds of new ones in ``make fuzz``."""

from collections.abc import Iterator

import pytest
import structlog
from hypothesis import HealthCheck, Phase, settings

# Those given by name are tried by ``make test``: here what is found is found by chance.
settings.register_profile(
    "fuzz",
    # What is not named here is as in the profile that all tests have, and that one tries the same each time.
    derandomize=False,
    max_examples=1_000,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
    phases=[phase for phase in Phase if phase is not Phase.explicit],
)


@pytest.fixture(autouse=True)
def _only_what_is_critical_is_logged() -> Iterator[None]:
    """Each bad example says so; thousands of them say nothing."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    yield
    structlog.configure(**before)
