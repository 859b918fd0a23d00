"""Which rack or block the pods of a set are to be in, read from Kueue's annotations of its template."""

import pytest

from tests.unit.jobs.objects_of_kinds import load, record_of
from webhook.core.model.gang import Nearness
from webhook.core.notation import names
from webhook.jobs.pod_sets.sites import PodSetSite
from webhook.jobs.pricing.context import ReadContext
from webhook.jobs.reading.pod_set import pod_set_of


def test_a_pod_template_says_which_domain_all_its_pods_have_to_be_in_or_had_best_be_in():
    obj = load("job")
    template = obj["spec"]["template"].setdefault("metadata", {})
    for written, near in (
        ({names.REQUIRED_TOPOLOGY: "cloud/rack"}, Nearness("cloud/rack", required=True)),
        ({names.PREFERRED_TOPOLOGY: "cloud/rack"}, Nearness("cloud/rack", required=False)),
        ({names.UNCONSTRAINED_TOPOLOGY: "true"}, Nearness("", required=False)),
        ({names.UNCONSTRAINED_TOPOLOGY: "false"}, None),
    ):
        template["annotations"] = written
        assert record_of(obj).gang.pod_sets[0].near == near


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ({names.REQUIRED_TOPOLOGY: "no label"}, "is not the name of a node label"),
        ({names.REQUIRED_TOPOLOGY: ["a"]}, "is not the name of a node label"),
        ({names.REQUIRED_TOPOLOGY: "a" * 400}, "is not the name of a node label"),
        ({names.REQUIRED_TOPOLOGY: "rack", names.PREFERRED_TOPOLOGY: "block"}, "cannot be combined with any of"),
    ],
)
def test_a_domain_that_is_none_is_said_to_be_so(written, said):
    obj = load("job")
    obj["spec"]["template"].setdefault("metadata", {})["annotations"] = written
    assert said in str(record_of(obj).problem)


SLICES = {names.SLICE_TOPOLOGY: "cloud/rack", names.SLICE_SIZE: "2"}


def sliced(written, count=4):
    obj = load("job")
    obj["spec"] |= {"parallelism": count, "completions": count}
    obj["spec"]["template"].setdefault("metadata", {})["annotations"] = written
    return record_of(obj)


def test_a_pod_template_says_how_many_pods_are_a_slice_that_is_not_torn_apart():
    for written, near in (
        (SLICES, Nearness("", False, "cloud/rack", 2)),
        (SLICES | {names.UNCONSTRAINED_TOPOLOGY: "true"}, Nearness("", False, "cloud/rack", 2)),
        (SLICES | {names.REQUIRED_TOPOLOGY: "block"}, Nearness("block", True, "cloud/rack", 2)),
        (SLICES | {names.PREFERRED_TOPOLOGY: "block"}, Nearness("block", False, "cloud/rack", 2)),
        (SLICES | {names.SLICE_SIZE: "1"}, None),
    ):
        assert sliced(written).gang.pod_sets[0].near == near


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ({names.SLICE_SIZE: "2"}, f"{names.SLICE_SIZE}: 2: needs {names.SLICE_TOPOLOGY} with it"),
        ({names.SLICE_TOPOLOGY: "rack"}, f"{names.SLICE_TOPOLOGY}: rack: needs {names.SLICE_SIZE} with it"),
        (SLICES | {names.SLICE_SIZE: "3"}, "3: does not divide the 4 pods of the set; write a number that does"),
        (SLICES | {names.SLICE_SIZE: "8"}, "8: does not divide the 4 pods of the set"),
        (SLICES | {names.SLICE_SIZE: "0"}, "0: is not a number of pods; write 1 to 4, in quotes"),
        (SLICES | {names.SLICE_SIZE: 2}, "2: is not a number of pods"),
        (SLICES | {names.SLICE_SIZE: "9" * 40}, "is not a number of pods"),
        (SLICES | {names.SLICE_TOPOLOGY: "no label"}, "is not the name of a node label"),
        (SLICES | {names.POD_SET_GROUP: "g"}, f"cannot be combined with {names.POD_SET_GROUP}; keep one of them"),
        ({names.SLICE_LAYERS: "[]"}, f"is not carried out; name one level by {names.SLICE_TOPOLOGY}"),
    ],
)
def test_slices_that_are_none_are_said_to_be_so(written, said):
    assert said in str(sliced(written).problem)


def test_a_job_that_was_started_with_fewer_pods_may_have_a_slice_that_lacks_some():
    site = PodSetSite("main", 3, {"annotations": SLICES}, {}, {})
    assert pod_set_of(site, "ns", ReadContext(), admitted=True).near == Nearness("", False, "cloud/rack", 2)
