"""Which rack or block the pods of a set are to be in, read from Kueue's annotations of its template."""

import pytest

from tests.unit.jobs.objects_of_kinds import load, record_of
from webhook.core.model import names
from webhook.core.model.gang import Nearness


def test_a_pod_template_says_which_domain_all_its_pods_have_to_be_in_or_had_best_be_in():
    obj = load("job")
    template = obj["spec"]["template"].setdefault("metadata", {})
    for written, near in (
        ({names.REQUIRED_TOPOLOGY: "cloud/rack"}, Nearness("cloud/rack", required=True)),
        ({names.PREFERRED_TOPOLOGY: "cloud/rack"}, Nearness("cloud/rack", required=False)),
        ({names.UNCONSTRAINED_TOPOLOGY: "true"}, None),
    ):
        template["annotations"] = written
        assert record_of(obj).gang.pod_sets[0].near == near


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ({names.REQUIRED_TOPOLOGY: "no label"}, "is not the name of a node label"),
        ({names.REQUIRED_TOPOLOGY: ["a"]}, "is not the name of a node label"),
        ({names.REQUIRED_TOPOLOGY: "a" * 400}, "is not the name of a node label"),
        ({names.REQUIRED_TOPOLOGY: "rack", names.PREFERRED_TOPOLOGY: "block"}, "goes with no other of"),
    ],
)
def test_a_domain_that_is_none_is_said_to_be_so(written, said):
    obj = load("job")
    obj["spec"]["template"].setdefault("metadata", {})["annotations"] = written
    assert said in str(record_of(obj).problem)


def test_slices_are_refused_and_not_ignored() -> None:
    for name in names.SLICE_TOPOLOGIES:
        obj = load("job")
        obj["spec"]["template"]["metadata"]["annotations"] = {name: "2"}
        problem = str(record_of(obj).problem)
        assert problem == (
            f"pod set main: annotation {name}: 2: is not carried out; leave it out, or make each slice a pod set with "
            f"{names.REQUIRED_TOPOLOGY}"
        )
