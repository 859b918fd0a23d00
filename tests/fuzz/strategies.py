"""What anybody may write: any JSON, real objects with something changed, and what is deep, wide or long."""

import copy
from collections.abc import Iterator
from typing import Any

import orjson
from hypothesis import assume, settings
from hypothesis import strategies as st

KEYS = st.sampled_from(
    ["metadata", "spec", "template", "containers", "resources", "limits", "name", "labels", "annotations", "replicas"]
) | st.text(max_size=6)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=12)
    | st.sampled_from(["", "1", "9E", "-1", "1e999", "0x10", "Infinity", "٣", "1" * 5000, "a" * 300, "\u202e", "\x00"])
)
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=20
)
DEPTHS = st.sampled_from([90, 101, 150, 260, 900, 1_100, 9_000])
DEEP = "DEEP"
"""Stands in an object for what is nested so deep that no encoder of ours writes it."""
SHORT = settings.get_current_profile_name() != "fuzz"
WIDE = st.integers(0, 11 if SHORT else 15).flatmap(lambda bits: st.integers(2**bits, 2 ** (bits + 1)))
"""How many names a map has, each order of size as often: what is above one bound never meets the next one."""
OFTEN = [2, 20, 300] if SHORT else [2, 20, 300, 6_000]
ASKED_MAX = 10_000 if SHORT else 40_000
VALUES_MAX = 200_000
"""In one object, more than any that is stored has: what is repeated within what was repeated soon fills all memory."""
AMOUNTS = st.sampled_from(["9P", "9P", "1", 1, "1m", "0", "123456789012345678", "8Ei"])


@st.composite
def changed(draw: st.DrawFn, originals: Any, changes: int = 4) -> Any:
    """A real object, some places of which hold something else now; its identity stays, as the API server keeps it."""
    obj = copy.deepcopy(draw(originals))
    if draw(st.booleans()):
        # Nothing else: most changes make a thing that is refused before anybody counts what it asks.
        _ask(draw, obj)
    else:
        for _ in range(draw(st.integers(0, changes))):
            _change(draw, obj)
    # What is changed within what was repeated is changed as often.
    assume(_weight(obj, {}) <= 2 * VALUES_MAX)
    return obj


def _change(draw: st.DrawFn, obj: Any) -> None:
    if draw(st.integers(0, 5)) == 0:
        _ask(draw, obj)
        return
    node, key = obj, "spec"
    # Something within the spec: of what has none nobody reads more.
    while node is obj or draw(st.integers(0, 9)) < 8:
        child = node[key] if not isinstance(node, dict) or key in node else None
        if isinstance(child, dict) and child:
            node, key = child, draw(st.sampled_from(sorted(child, key=str)))
        elif isinstance(child, list) and child:
            node, key = child, draw(st.integers(0, len(child) - 1))
        else:
            break
    what = draw(st.sampled_from(["deepen", "deepen", "replace", "remove", "widen", "repeat"]))
    if what == "remove" and isinstance(node, dict):
        node.pop(key, None)
    elif what == "widen":
        # One value for all: thousands of choices are more than Hypothesis makes.
        value, names = draw(SCALARS), _names(draw)
        node[key] = dict.fromkeys(names[: 1 + _room(obj) // _weight(value, {})], value)
    elif what == "repeat" and isinstance(node, dict) and isinstance(node.get(key), list):
        node[key] = node[key] * _times(draw, obj, node[key])
    else:
        node[key] = DEEP if what == "deepen" else draw(JSON)


def _times(draw: st.DrawFn, obj: Any, part: Any) -> int:
    """Return how often a part of an object may be there instead of once."""
    room = _room(obj)
    return draw(st.sampled_from([1, *(times for times in OFTEN if times * _weight(part, {}) <= room)]))


def _room(obj: Any) -> int:
    return max(0, VALUES_MAX - _weight(obj, {}))


def _weight(node: Any, counted: dict[int, int]) -> int:
    """Return how many values are written of ``node``, a long text being several; what is in several places is counted
    once and taken as often.
    """
    if isinstance(node, str):
        return 10_000 if node == DEEP else 1 + len(node) // 16
    if not isinstance(node, dict | list):
        return 1
    if id(node) not in counted:
        below = node.values() if isinstance(node, dict) else node
        counted[id(node)] = 1 + sum(_weight(each, counted) for each in below)
    return counted[id(node)]


def _names(draw: st.DrawFn) -> list[str]:
    name = draw(
        st.sampled_from(["a.b/{}", "{}", "example.com/a-name-as-long-as-the-api-server-takes-it-for-a-resource-{}"])
    )
    return [name.format(number) for number in range(draw(WIDE))]


def _ask(draw: st.DrawFn, obj: Any) -> None:
    """Have some of the object's containers, or all, ask for very many resources, and some pod sets be very many."""
    pod_sets: Any = [each for each in _lists(obj) if any(next(_containers(entry), None) for entry in each)]
    if pod_sets and draw(st.booleans()):
        some = draw(st.sampled_from(pod_sets))
        # Those that bear a name bear each another one, or nobody would take them for more than one.
        some[:] = [
            {**entry, "name": f"{entry['name']}-{number}"} if isinstance(entry, dict) and "name" in entry else entry
            for number in range(_times(draw, obj, some))
            for entry in some
        ]
    containers = list(_containers(obj))
    asked = containers[: draw(st.sampled_from([1, 3, len(containers), len(containers)]))]
    # All together no more than an object holds that is stored: what is larger is thrown away, and took its time.
    names = _names(draw)[: ASKED_MAX // max(1, len(asked)) + 1]
    amounts = dict.fromkeys(names, draw(AMOUNTS))
    for container in asked:
        container["resources"] = {draw(st.sampled_from(["limits", "requests"])): amounts}


def _lists(node: Any) -> Iterator[list[Any]]:
    for below in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        if isinstance(below, list):
            yield below
        yield from _lists(below)


def _containers(node: Any) -> Iterator[dict[str, Any]]:
    for key, below in node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ():
        if key == "containers" and isinstance(below, list):
            yield from (each for each in below if isinstance(each, dict))
        yield from _containers(below)


class Drawn(bytes):
    """Bytes that Hypothesis forgets: it keeps all that it draws of a plain type until a test has ended, and a thousand
    objects of megabytes filled the memory. Where no more is to be had ``orjson.dumps`` ends the process.
    """


@st.composite
def json_bytes(draw: st.DrawFn, objects: Any) -> bytes:
    """An object as bytes, with what is too deep for an encoder put in."""
    levels = draw(DEPTHS)
    opening, closing = draw(st.sampled_from([(b"[", b"]"), (b'{"x":', b"}"), (b'[{"x":1,"y":', b"}]")]))
    obj = draw(objects)
    # Whatever was put into it since it was changed, such as metadata, is written too.
    assume(_weight(obj, {}) <= 2 * VALUES_MAX)
    raw = orjson.dumps(obj, option=orjson.OPT_NON_STR_KEYS)
    return Drawn(raw.replace(b'"DEEP"', opening * levels + b"1" + closing * levels))
