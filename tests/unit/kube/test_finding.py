"""What may not be there: an object is None then, a list is empty, and a long list comes page by page."""

from collections.abc import Mapping
from typing import Any

import orjson

from tests.unit.kube.fake_api import thing
from webhook.errors import NotFound
from webhook.kube.finding import PAGE_SIZE, every, find

THINGS = [thing(f"t{number}", number) for number in range(2 * PAGE_SIZE + 1)]


class Paged:
    """Serves THINGS in pages, and nothing else."""

    def __init__(self) -> None:
        self.asked: list[Mapping[str, str]] = []

    async def request(self, method: str, path: str, *, query: Mapping[str, str] | None = None, **_: Any) -> bytes:
        if path == "/things/t7":
            return orjson.dumps(THINGS[7])
        if path != "/things":
            raise NotFound(404, "NotFound", f"there is no {path}")
        assert query is not None
        self.asked.append(dict(query))
        start, limit = int(query.get("continue", 0)), int(query["limit"])
        more = {"continue": str(start + limit)} if start + limit < len(THINGS) else {}
        return orjson.dumps({"metadata": more, "items": THINGS[start : start + limit]})


async def test_a_long_list_is_read_to_its_end_and_each_page_asks_for_the_label() -> None:
    api = Paged()
    assert [each async for each in every(api, "/things", "ours")] == THINGS  # type: ignore[arg-type]
    assert [(each["labelSelector"], each.get("continue")) for each in api.asked] == [
        ("ours", None),
        ("ours", str(PAGE_SIZE)),
        ("ours", str(2 * PAGE_SIZE)),
    ]


async def test_what_is_not_served_has_no_objects_and_what_is_not_there_is_none() -> None:
    api = Paged()
    assert [each async for each in every(api, "/others")] == []  # type: ignore[arg-type]
    assert await find(api, "/things/t7") == THINGS[7]  # type: ignore[arg-type]
    assert await find(api, "/things/other") is None  # type: ignore[arg-type]
