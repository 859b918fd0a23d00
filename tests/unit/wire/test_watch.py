"""Who an object is, is read within bounds: what is kept of it has to be short."""

import orjson
import pytest

from webhook.wire.watch import Malformed, read_metadata, read_page


@pytest.mark.parametrize("key", ["name", "namespace", "uid", "resourceVersion"])
def test_a_name_longer_than_any_is_none(key: str) -> None:
    assert read_metadata(orjson.dumps({"metadata": {key: "x" * 1_024}}))
    with pytest.raises(Malformed):
        read_metadata(orjson.dumps({"metadata": {key: "x" * 1_025}}))


@pytest.mark.parametrize("page", [{"metadata": {"continue": "x" * 20_000}}, {"metadata": {}, "kind": "x" * 2_000}])
def test_a_page_that_would_have_the_next_asked_for_by_a_book_is_none(page: dict[str, object]) -> None:
    with pytest.raises(Malformed):
        read_page(orjson.dumps(page))
