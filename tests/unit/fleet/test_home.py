"""Where the hub's own API server stands, by whatever kind it lets the hub list."""

from typing import Any

import orjson
import pytest

from webhook.errors import ApiError, Forbidden, Unavailable
from webhook.fleet.home import Home
from webhook.jobs.kinds.registry import KINDS


class Listing:
    """An API server at some version, which refuses lists of Jobs."""

    def __init__(self, error: ApiError) -> None:
        self.version, self.asked, self._error = 10, 0, error

    async def request(self, _method: str, path: str, **_how: Any) -> bytes:
        self.asked += 1
        if path.endswith("/jobs"):
            raise self._error
        return orjson.dumps({"metadata": {"resourceVersion": str(self.version)}})


async def test_a_set_back_is_noticed_while_jobs_cannot_be_listed() -> None:
    api = Listing(Forbidden(403, "Forbidden", "jobs.batch is forbidden"))
    home = Home(api, [KINDS["Job.batch"], KINDS["PyTorchJob.kubeflow.org"]])  # type: ignore[arg-type]
    assert await home.set_back_to() is None
    api.version = 9
    assert await home.set_back_to() == 9


@pytest.mark.parametrize("status", [0, 429, 504])
async def test_one_that_has_too_much_to_do_is_not_asked_for_every_kind(status: int) -> None:
    api = Listing(Unavailable(status, "", ""))
    home = Home(api, KINDS.values())  # type: ignore[arg-type]
    with pytest.raises(Unavailable):
        await home.set_back_to()
    assert api.asked == 1
