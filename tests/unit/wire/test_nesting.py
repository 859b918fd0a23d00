"""What is too deep is cut from the bytes, and nothing else; no decoder comes to its own limit on what is left."""

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.wire.nesting import LEVELS_MAX, LONG_BYTES, WRAPPING_LEVELS, fits, shallow, shallow_in_steps
from webhook.wire.watch import TooDeep, read_event, read_metadata, read_page, read_status

TEXTS = st.text(st.characters(codec="utf-8") | st.sampled_from('[]{}"\\'), max_size=8)
DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=30,
)


def cut(value: Any, levels: int) -> Any:
    """What ``shallow`` means, said by recursion."""
    if not isinstance(value, dict | list):
        return value
    if levels == 0:
        return None
    if isinstance(value, list):
        return [cut(item, levels - 1) for item in value]
    return {key: cut(item, levels - 1) for key, item in value.items()}


def nested(levels: int, opening: str = '{"x":', closing: str = "}", core: str = "1") -> bytes:
    return (opening * levels + core + closing * levels).encode()


@given(DOCUMENTS, st.integers(0, 6), st.booleans())
def test_what_lies_too_deep_becomes_null_and_all_else_stays(document: Any, levels: int, escaped: bool) -> None:
    raw = json.dumps(document, ensure_ascii=escaped).encode()
    assert json.loads(shallow(raw, levels)) == cut(document, levels)
    assert fits(raw, levels) == (cut(document, levels) == document)


@given(DOCUMENTS, st.integers(0, 40))
def test_it_is_the_same_for_documents_too_long_to_be_folded(document: Any, levels: int) -> None:
    raw = json.dumps([document, [[]] * 3000]).encode()
    assert json.loads(shallow(raw, levels)) == cut(json.loads(raw), levels)


@given(DOCUMENTS, st.text('[]{}"\\a', max_size=40), st.integers(0, 60), st.integers(0, 8))
def test_it_is_the_same_wherever_a_long_text_is_parted(document: Any, text: str, before: int, levels: int) -> None:
    raw = json.dumps(["a" * (LONG_BYTES - before), text, document, text * 2000, [[]] * 20]).encode()
    assert json.loads(shallow(raw, levels)) == cut(json.loads(raw), levels)
    assert fits(raw, levels) == (cut(json.loads(raw), levels) == json.loads(raw))


@given(st.binary(max_size=60) | st.text('[]{}",:\\a1 ', max_size=60).map(str.encode), st.integers(0, 3))
def test_what_is_no_json_raises_nothing(raw: bytes, levels: int) -> None:
    fits(raw, levels)
    assert isinstance(shallow(raw, levels), bytes)


@pytest.mark.parametrize("levels", [900, 1_100, 10_000])
@pytest.mark.parametrize("wrapped", [("[", "]"), ('{"x":', "}"), ('[{"x":1,"y":', "}]")])
def test_an_envelope_is_read_however_deep_its_object_is(levels: int, wrapped: tuple[str, str]) -> None:
    deep = nested(levels, *wrapped)
    thing = b'{"metadata":{"name":"a","uid":"u","managedFields":%s},"spec":%s}' % (deep, deep)
    whole = b'{"metadata":{"resourceVersion":"7"},"items":[%s,{"metadata":{"name":"b"}}]}' % thing
    with suppress(TooDeep):
        assert read_page(whole).objects()[0] == thing
    page = read_page(shallow(whole, LEVELS_MAX + WRAPPING_LEVELS))
    assert [read_metadata(raw).name for raw in page.objects()] == ["a", "b"]
    line = shallow(b'{"type":"ADDED","object":%s}' % thing, LEVELS_MAX + 1)
    assert read_metadata(read_event(line).object).uid == "u"
    assert read_status(shallow(b'{"code":500,"details":%s}' % deep)) is not None


@pytest.mark.parametrize(
    "raw",
    [nested(200_000), b"[" * 101 + b"[]," * 300_000 + b"1" + b"]" * 101, b"[" * 99 + b"[[[[]]]]," * 90_000 + b"1"],
)
def test_what_is_long_and_crafted_to_be_deep_is_cut_in_many_steps(raw: bytes) -> None:
    assert sum(1 for _ in shallow_in_steps(raw)) > 20


@pytest.mark.parametrize(
    "wide",
    [
        b"[%s1]" % (b"1," * 1_000_000),
        b"[%s1]" % (b" " * 2_000_000),
        b"{%s}" % b",".join(b'"a.b/%d":"9P"' % number for number in range(120_000)),
        b'"%s"' % (rb"\"" * 1_000_000),
        b'"%s"' % (b"a" * 2_000_000),
    ],
    ids=["numbers", "blanks", "names", "escapes", "letters"],
)
def test_whatever_stands_beside_what_is_too_deep_it_is_looked_at_and_cut_in_steps_of_so_many_bytes(wide: bytes) -> None:
    raw = b'{"deep":%s,"wide":%s}' % (nested(200), wide)
    assert sum(1 for _ in shallow_in_steps(raw)) > 1.9 * len(raw) / LONG_BYTES
    assert shallow(raw) == b'{"deep":%s,"wide":%s}' % (nested(99, core="null"), wide)


def test_a_long_text_of_escapes_and_strings_is_looked_at_in_many_steps() -> None:
    raw = b"[%s1]" % (rb'["\"[","]",{}],' * 100_000)
    assert sum(1 for _ in shallow_in_steps(raw)) > 20
    assert shallow(raw) is raw


def test_an_object_as_deep_as_any_that_is_read_stays_as_it_is() -> None:
    raw = nested(LEVELS_MAX)
    assert shallow(raw) is raw
    assert json.loads(shallow(nested(LEVELS_MAX + 1))) == json.loads(nested(LEVELS_MAX, core="null"))
