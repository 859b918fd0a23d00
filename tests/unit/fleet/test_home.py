"""Where the hub's own API server stands, by whatever kind it lets the hub list."""

from typing import Any

import orjson
import pytest

from webhook.errors import ApiError, Forbidden, Unavailable
from webhook.fleet.home import Home
from webhook.jobs.kinds.registry import KINDS


class Listing:
    """An API server at some version, which refuses some lists."""

    def __init__(self, error: ApiError, refused: str = "/jobs") -> None:
        self.version, self.asked, self._error, self._refused = 10, 0, error, refused

    async def request(self, _method: str, path: str, **_how: Any) -> bytes:
        self.asked += 1
        if path.endswith(self._refused):
            raise self._error
        return orjson.dumps({"metadata": {"resourceVersion": str(self.version)}})


async def test_a_set_back_is_noticed_while_jobs_cannot_be_listed() -> None:
    api = Listing(Forbidden(403, "Forbidden", "jobs.batch is forbidden"))
    home = Home(api, [KINDS["Job.batch"], KINDS["PyTorchJob.kubeflow.org"]])  # type: ignore[arg-type]
    assert await home.set_back_to() is None
    api.version = 9
    assert await home.set_back_to() == 9


@pytest.mark.parametrize("status", [0, 429, 502, 503, 504])
async def test_one_that_has_too_much_to_do_is_not_asked_for_every_kind(status: int) -> None:
    api = Listing(Unavailable(status, "", ""))
    home = Home(api, KINDS.values())  # type: ignore[arg-type]
    with pytest.raises(Unavailable):
        await home.set_back_to()
    assert api.asked == 1


async def test_one_that_refuses_every_kind_is_asked_for_two_each_time() -> None:
    api = Listing(Unavailable(500, "InternalError", ""), refused="")
    home = Home(api, KINDS.values())  # type: ignore[arg-type]
    for _ in range(10):
        with pytest.raises(Unavailable):
            await home.set_back_to()
    assert api.asked == 20
