"""What somebody wrote on a job in Tutti's name before there was a webhook to refuse it: no ledger is lost by it."""

import json
from dataclasses import replace
from typing import Any, Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.unit.jobs.records import waiting_job
from webhook.cluster import rebuild
from webhook.cluster.view import View
from webhook.core.ledger import text
from webhook.core.ledger.record import Ledger
from webhook.core.model.gang import Gang, PodPrice, PodSet
from webhook.jobs.reading import annotations

GPU: Final = "nvidia.com/gpu"
GANG: Final = Gang("uid", "Job.batch", "ns", "train", "q", (PodSet("main", 2, PodPrice({GPU: 1000})),))
NOTE: Final = {"uid": "uid", "epoch": 4, "seq": 9, "queue": "q", "counts": {"main": 2}, "since": 100.25}
ODD: Final = st.sampled_from(
    [-1, 0, 2**31, 2**52, 2**53 - 1, 2**53, 2**64, 1e300, -1.5, "nan", "inf", "-7", None, [], {}]
)


def noted(view: View, uid: str = "uid", **fields: Any) -> View:
    """Put a job that runs by such a note into a view."""
    admission = annotations.decode_admission(json.dumps(NOTE | {"uid": uid} | fields), uid)
    job = waiting_job(replace(GANG, uid=uid, name=uid), suspended=False, active=True)
    view.put_job(replace(job, admission=admission))
    return view


@pytest.mark.parametrize(
    "fields",
    [
        {"epoch": -1},
        {"epoch": 2**53},
        {"seq": "1" * 30},
        {"since": "nan"},
        {"since": 1e300},
        {"ran": "-inf"},
        {"counts": {"main": -100}},
        {"charges": {"main": {GPU: -1000}}},
    ],
    ids=str,
)
def test_a_start_by_numbers_that_we_never_write_is_none(fields: dict[str, Any]) -> None:
    assert not rebuild.rebuilt_ledger(noted(View(), **fields), None).entries


@pytest.mark.parametrize("field", ["epoch", "seq"])
def test_a_number_far_above_all_others_is_not_counted_on_from(field: str) -> None:
    """No ledger could be read that counts on from there, and each one of before would be taken for an old copy."""
    view = noted(noted(View()), "forged", **{field: 2**53 - 1})
    assert rebuild.rebuilt_ledger(view, None).version == (5, 10)
    assert rebuild.proved_seq(view) == 9
    assert ("ns/forged" in rebuild.unheld(view, Ledger(4, 9))) is (field == "epoch")
    known = Ledger(6, 20)
    assert rebuild.rebuilt_ledger(view, known).version == (7, 21)


@example({"epoch": 2**53 - 1, "seq": 2**53 - 1})
@given(st.fixed_dictionaries({}, optional=dict.fromkeys(("epoch", "seq", "since", "ran", "attempts"), ODD)))
def test_whatever_a_note_says_the_ledger_that_is_rebuilt_is_read_as_it_was_written(fields: dict[str, Any]) -> None:
    made = rebuild.rebuilt_ledger(noted(View(), **fields), None)
    assert text.decode(text.encode(made)) == made
