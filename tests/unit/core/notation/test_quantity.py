"""Quantity text to exact integers and back, as k8s.io/apimachinery reads it."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.core.notation import quantity


@pytest.mark.parametrize(
    ("text", "thousandths"),
    [
        ("0", 0),
        ("4", 4000),
        ("500m", 500),
        ("4.8", 4800),
        (".5", 500),
        ("1.", 1000),
        ("+3", 3000),
        ("-3", -3000),
        ("1k", 1_000_000),
        ("1Ki", 1_024_000),
        ("16Gi", 16 * 2**30 * 1000),
        ("2e3", 2_000_000),
        ("2E3", 2_000_000),
        ("1E", 10**18 * 1000),
        ("1.5Gi", 3 * 2**29 * 1000),
        ("100u", 1),
        ("1n", 1),
        ("-1n", -1),
    ],
)
def test_valid_text_is_read_exactly(text: str, thousandths: int) -> None:
    """Finer than a thousandth goes away from zero."""
    assert quantity.parse(text) == thousandths


@pytest.mark.parametrize(
    "text",
    ["", " 1", "1 ", "1 Gi", "1_000", "Infinity", "NaN", "1K", "1ki", "0x10", "１", "1e", "--1", "1mm", "9" * 65],
)
def test_what_the_api_server_refuses_is_refused_with_the_value(text: str) -> None:
    """The message shows what was given and what is valid."""
    with pytest.raises(quantity.QuantityError, match="is not a quantity"):
        quantity.parse(text)


@pytest.mark.parametrize("value", [None, True, {}, [], float("nan"), float("inf")])
def test_other_json_is_refused(value: object) -> None:
    """Only text and numbers are quantities."""
    with pytest.raises(quantity.QuantityError):
        quantity.parse(value)


def test_json_numbers_are_read_as_their_text() -> None:
    """Custom resources carry int-or-string; the API server's reader takes any number."""
    assert quantity.parse(4) == quantity.parse(4.0) == 4000
    assert (quantity.parse(0.1), quantity.parse(2.4), quantity.parse(1e22)) == (100, 2400, 10**25)


@given(st.integers(-(10**15), 10**15), st.sampled_from(["cpu", "memory", "nvidia.com/gpu", "ephemeral-storage"]))
def test_rendered_amounts_are_read_back_unchanged(thousandths: int, resource: str) -> None:
    """render and parse are inverse, whatever suffix is chosen."""
    assert quantity.parse(quantity.render(thousandths, resource)) == thousandths


@given(st.decimals(0, 10**9, places=3))
def test_decimal_text_means_what_it_says(value: Decimal) -> None:
    """An independent reading of plain decimals agrees."""
    assert quantity.parse(f"{value:f}") == int(value * 1000)


def test_the_larger_quantity_is_kept_as_it_was_written_and_what_is_none_stays():
    left = {"cpu": "1000m", "memory": "1Gi", "odd": "many", "pods": 3}
    right = {"cpu": 1, "memory": "1025Mi", "odd": "4", "storage": "1k", "pods": "few"}
    assert quantity.largest(left, right) == {
        "cpu": "1000m",
        "memory": "1025Mi",
        "odd": "many",
        "pods": 3,
        "storage": "1k",
    }
    assert quantity.largest(None, None) == {}
