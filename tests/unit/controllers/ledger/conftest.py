"""A cluster with keepers, and objects of the ledger that are soon full."""

from collections.abc import AsyncIterator

import pytest

from tests.unit.controllers.ledger.keepers import Stage
from webhook.core.ledger import pages


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    stage = Stage()
    async with stage.cluster:
        yield stage


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let two entries fill an object."""
    monkeypatch.setattr(pages, "INDEX_BYTES", 400)
    monkeypatch.setattr(pages, "PAGE_BYTES", 400)
