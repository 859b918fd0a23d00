"""Pods of one template are priced once, whoever reads them; and again when what prices them changes."""

from typing import Any

import pytest

from tests.unit.jobs.objects_of_kinds import load
from webhook.core.notation.quantity import MILLI
from webhook.jobs.kinds.registry import KINDS
from webhook.jobs.pricing import pod_requests
from webhook.jobs.pricing.context import ReadContext, context_from
from webhook.jobs.reading import pod_set
from webhook.jobs.reading.job import read

GIB = 2**30 * MILLI


@pytest.fixture
def priced(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What ``price`` was asked, from nothing known on."""
    pod_set._priced.cache_clear()
    asked: list[Any] = []
    price = pod_requests.price

    def noted(*given: Any, **more: Any) -> Any:
        asked.append(given)
        return price(*given, **more)

    monkeypatch.setattr(pod_set, "price", noted)
    return asked


def job(name: str = "a", **spec: Any) -> dict[str, Any]:
    obj = load("job")
    obj["metadata"] |= {"name": name, "uid": name}
    obj["spec"]["template"]["spec"] |= spec
    return obj


def asks(obj: dict[str, Any], resource: str, context: ReadContext | None = None) -> int | None:
    record = read(KINDS["Job.batch"], obj, context or ReadContext())
    assert record.gang is not None
    amount: int | None = record.gang.pod_sets[0].price.requests.get(resource)
    return amount


def test_a_job_is_priced_once_though_it_changes_and_others_are_made_of_its_template(priced: list[Any]) -> None:
    """Its start, its statuses and its reviews are read too."""
    started = job()
    started["spec"]["suspend"] = False
    started["status"] = {"active": 4}
    for each in (job(), started, job("b")):
        assert asks(each, "nvidia.com/gpu") == MILLI
    assert len(priced) == 1


def test_another_template_has_a_price_of_its_own(priced: list[Any]) -> None:
    """Also where it differs by one amount alone."""
    other = job()
    container = other["spec"]["template"]["spec"]["containers"][0]
    container["resources"] = {"limits": {"nvidia.com/gpu": "2"}}
    assert (asks(job(), "nvidia.com/gpu"), asks(other, "nvidia.com/gpu")) == (MILLI, 2 * MILLI)
    assert len(priced) == 2


def test_what_the_cluster_adds_to_a_pod_is_part_of_what_is_remembered(priced: list[Any]) -> None:
    """Classes and LimitRanges come, change and go."""
    bare = job(runtimeClassName="gvisor", containers=[{"name": "c"}])
    overhead = {"metadata": {"name": "gvisor"}, "overhead": {"podFixed": {"memory": "1Gi"}}}
    more = {"metadata": {"name": "gvisor"}, "overhead": {"podFixed": {"memory": "2Gi"}}}
    asked = {"type": "Container", "defaultRequest": {"memory": "1Gi"}}
    default = {
        "metadata": {"namespace": bare["metadata"]["namespace"], "name": "d"},
        "spec": {"limits": [asked]},
    }
    assert asks(bare, "memory") is None
    assert asks(bare, "memory", context_from(runtime_classes=[overhead])) == GIB
    assert asks(bare, "memory", context_from(runtime_classes=[more])) == 2 * GIB
    assert asks(bare, "memory", context_from(limit_ranges=[default])) == GIB
    assert asks(bare, "memory") is None
    assert len(priced) == 4


def test_the_default_class_is_part_of_it_too() -> None:
    """A ResourceQuota may bound the pods of one class."""
    usual = {"metadata": {"name": "usual"}, "value": 5, "globalDefault": True}
    for context, name in ((ReadContext(), ""), (context_from(priority_classes=[usual]), "usual")):
        record = read(KINDS["Job.batch"], job(priorityClassName=""), context)
        assert record.gang is not None
        assert record.gang.pod_sets[0].price.priority_class == name


def test_a_long_spec_is_priced_each_time(priced: list[Any]) -> None:
    """What is remembered is bounded."""
    long = job(hostname="h" * pod_set.PRICED_BYTES_MAX)
    assert [asks(long, "nvidia.com/gpu") for _ in range(2)] == [MILLI, MILLI]
    assert len(priced) == 2
    assert pod_set._priced.cache_info().currsize == 0


def test_what_is_no_json_is_priced_as_it_is(priced: list[Any]) -> None:
    """No API server sends it: a test, or another part of this program, may."""
    odd = job(nodeSelector={1: "a"})
    assert asks(odd, "nvidia.com/gpu") == MILLI
    assert len(priced) == 1
