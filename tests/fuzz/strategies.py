"""What anybody may write: any JSON, real objects with something changed, and what is deep, wide or long."""

import copy
from typing import Any

import orjson
import yaml
from hypothesis import strategies as st

from tests.unit.jobs.objects_of_kinds import DIRECTORY

REAL = {path.stem: yaml.safe_load(path.read_text()) for path in sorted(DIRECTORY.glob("*.yaml"))}
"""Objects of each job kind, as an API server hands them out."""

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
WIDE = st.sampled_from([70, 600, 30_000])


@st.composite
def changed(draw: st.DrawFn, originals: Any, changes: int = 4) -> Any:
    """A real object, some places of which hold something else now; its identity stays, as the API server keeps it."""
    obj = copy.deepcopy(draw(originals))
    for _ in range(draw(st.integers(0, changes))):
        _change(draw, obj)
    return obj


def _change(draw: st.DrawFn, obj: Any) -> None:
    node, key = obj, "spec"
    while draw(st.integers(0, 9)) < 8:
        child = node[key] if not isinstance(node, dict) or key in node else None
        if isinstance(child, dict) and child:
            node, key = child, draw(st.sampled_from(sorted(child, key=str)))
        elif isinstance(child, list) and child:
            node, key = child, draw(st.integers(0, len(child) - 1))
        else:
            break
    what = draw(st.sampled_from(["deepen", "replace", "remove", "widen", "repeat"]))
    if what == "remove" and isinstance(node, dict):
        node.pop(key, None)
    elif what == "widen":
        node[key] = {f"a.b/{number}": draw(SCALARS) for number in range(draw(WIDE))}
    elif what == "repeat" and isinstance(node, dict) and isinstance(node.get(key), list):
        node[key] = node[key] * draw(st.sampled_from([2, 300]))
    else:
        node[key] = DEEP if what == "deepen" else draw(JSON)


@st.composite
def json_bytes(draw: st.DrawFn, objects: Any) -> bytes:
    """An object as bytes, with what is too deep for an encoder put in."""
    levels = draw(DEPTHS)
    opening, closing = draw(st.sampled_from([(b"[", b"]"), (b'{"x":', b"}"), (b'[{"x":1,"y":', b"}]")]))
    raw = orjson.dumps(draw(objects), option=orjson.OPT_NON_STR_KEYS)
    return raw.replace(b'"DEEP"', opening * levels + b"1" + closing * levels)
