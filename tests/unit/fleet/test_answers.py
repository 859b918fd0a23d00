"""A member's answers are read in pages, each object alone, and never more of them than a member can have."""

import asyncio
from collections.abc import Mapping
from typing import Any

import orjson
import pytest

from webhook.errors import TooLarge
from webhook.fleet.members.answers import OBJECT_BYTES_MAX, OBJECTS_MAX, SHORT, object_of, objects_of

pytestmark = pytest.mark.virtual_time
OBJECTS = [{"metadata": {"name": f"job-{number}"}} for number in range(1_200)]


def page(objects: list[Any], token: str = "") -> bytes:
    return orjson.dumps({"metadata": {"continue": token}, "items": objects})


async def read(ask: Any) -> list[dict[str, Any]]:
    return [each async for each in objects_of(ask, {"labelSelector": "a"})]


async def test_a_list_is_read_page_by_page_and_in_smaller_pages_where_these_are_too_long() -> None:
    async def ask(query: Mapping[str, str]) -> bytes:
        assert query["labelSelector"] == "a"
        start, limit = int(query.get("continue", 0)), int(query["limit"])
        if limit > 100:
            raise TooLarge(200, "TooLarge", "a page of a list is too long")
        return page(OBJECTS[start : start + limit], str(start + limit) if start + limit < len(OBJECTS) else "")

    assert await read(ask) == OBJECTS


async def test_a_list_that_never_ends_is_no_list() -> None:
    asked = 0

    async def ask(query: Mapping[str, str]) -> bytes:
        nonlocal asked
        asked += 1
        return page(OBJECTS, "more")

    with pytest.raises(ValueError, match="does not end"):
        await read(ask)
    assert asked == OBJECTS_MAX // len(OBJECTS) + 1


async def test_empty_pages_that_never_end_are_no_list() -> None:
    async def ask(query: Mapping[str, str]) -> bytes:
        return page([], "more")

    with pytest.raises(ValueError, match="does not end"):
        await read(ask)


async def test_a_list_that_comes_too_slowly_to_end_is_no_list() -> None:
    async def ask(query: Mapping[str, str]) -> bytes:
        await asyncio.sleep(SHORT.seconds / 4)
        return page(OBJECTS[:1], "more")

    with pytest.raises(ValueError, match="not ended after 10 s"):
        await read(ask)


async def test_an_object_that_is_longer_than_any_page_is_no_object() -> None:
    async def ask(query: Mapping[str, str]) -> bytes:
        raise TooLarge(200, "TooLarge", "a page of a list is too long")

    with pytest.raises(ValueError, match="longer than a page"):
        await read(ask)


async def test_an_object_longer_than_etcd_takes_is_not_decoded() -> None:
    """Decoding blocks a loop that other members' gangs wait for."""
    long = orjson.dumps({"metadata": {}, "spec": "x" * OBJECT_BYTES_MAX})
    with pytest.raises(ValueError, match="bytes"):
        await object_of(long)

    async def ask(query: Mapping[str, str]) -> bytes:
        return b'{"metadata":{},"items":[%s]}' % long

    with pytest.raises(ValueError, match="bytes"):
        await read(ask)


async def test_an_object_nested_a_thousand_deep_is_cut_and_hides_no_other() -> None:
    deep = b'{"metadata":{"name":"deep"},"spec":%s1%s}' % (b'{"x":' * 5_000, b"}" * 5_000)

    async def ask(query: Mapping[str, str]) -> bytes:
        return b'{"metadata":{},"items":[%s,{"metadata":{"name":"sane"}}]}' % deep

    assert [each["metadata"]["name"] for each in await read(ask)] == ["deep", "sane"]


async def test_a_list_longer_than_a_member_can_have_is_no_list() -> None:
    long, asked = orjson.dumps({"metadata": {}, "spec": "x" * (OBJECT_BYTES_MAX // 2)}), 0

    async def ask(query: Mapping[str, str]) -> bytes:
        nonlocal asked
        asked += 1
        return b'{"metadata":{"continue":"more"},"items":[%s]}' % b",".join([long] * 12)

    with pytest.raises(ValueError, match="a list of more than 128 MiB"):
        await read(ask)
    assert asked == 11
