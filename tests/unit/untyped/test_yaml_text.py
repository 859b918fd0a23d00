"""YAML within bounds: what it stands for is counted before anything is built, aliases as what they repeat."""

import pytest

from webhook.untyped.yaml_text import LEVELS_MAX, UnreadableYaml, document, documents


def why(text: str) -> str:
    with pytest.raises(UnreadableYaml) as caught:
        documents(text)
    return str(caught.value)


def test_an_alias_stands_for_what_its_anchor_holds() -> None:
    assert document("a: &a [1, 2]\nb: *a\nc: [*a, *a]") == {"a": [1, 2], "b": [1, 2], "c": [[1, 2], [1, 2]]}


def test_a_billion_laughs_are_refused_with_their_line() -> None:
    lines = ["a0: &a0 [x, x]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10))]
    assert "line 6, " in why("\n".join(lines))
    assert "stands for more than 100000 values" in why("\n".join(lines))


def test_depth_is_bounded_also_where_aliases_make_it() -> None:
    assert document("[" * LEVELS_MAX + "]" * LEVELS_MAX) is not None
    assert "nested deeper than 100 levels" in why("[" * 101 + "]" * 101)
    assert "nested deeper than 100 levels" in why("[" * 5_000 + "]" * 5_000)
    chain = ["a0: &a0 [x]", *(f"a{n}: &a{n} [*a{n - 1}]" for n in range(1, 150))]
    assert "nested deeper than 100 levels" in why("\n".join(chain))


@pytest.mark.parametrize("text", ["a: &a [*a]", "a: 2026-13-45", "a: [1,\nb: }", "{[]: 1}", "*x", "a: " + "1" * 5_000])
def test_what_cannot_be_read_is_refused(text: str) -> None:
    assert why(text)


def test_where_one_document_is_read_several_are_refused() -> None:
    assert document("") is None
    with pytest.raises(UnreadableYaml, match="holds 2 documents"):
        document("a: 1\n---\nb: 2")
