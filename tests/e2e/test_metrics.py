"""What Prometheus would scrape of the real processes: everything that alerts and dashboards ask for."""

import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.e2e.controlplane.install import Installation
from tests.e2e.kubectl import Kubectl, wait_until
from tests.e2e.objects import GPU, job, pod_template
from tests.e2e.queues import QUEUE, give_queue
from tests.unit.manifests.test_metrics import FROM_PROMETHEUS, questions, selectors_of

pytestmark = pytest.mark.own_cluster
Sample = tuple[str, dict[str, str], float]


def scrape(tutti: Installation) -> tuple[set[str], list[Sample]]:
    """Return the names of all series that the replicas' families have, and the samples."""
    names: set[str] = set()
    samples: list[Sample] = []
    for replica in tutti.replicas:
        with urllib.request.urlopen(f"{replica.health}/metrics") as answer:
            for family in text_string_to_metric_families(answer.read().decode()):
                endings = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"]}.get(family.type, [""])
                names |= {family.name + ending for ending in endings}
                samples += [(sample.name, dict(sample.labels), sample.value) for sample in family.samples]
    return names, samples


def value(tutti: Installation, name: str, **labels: str) -> list[float]:
    """Return the values of all series of that name that have these labels."""
    return [found for series, have, found in scrape(tutti)[1] if series == name and labels.items() <= have.items()]


def test_the_running_processes_expose_everything_that_alerts_and_dashboards_ask_for(tutti: Installation) -> None:
    names, _ = scrape(tutti)
    asked = {str(selector.name) for _, expr in questions() for selector in selectors_of(expr)} - FROM_PROMETHEUS
    assert asked
    assert asked <= names


def test_a_queue_is_scraped_once_with_what_it_owns_and_uses_and_how_long_its_gangs_waited(
    tutti: Installation, admin: Kubectl, owner: Kubectl
) -> None:
    queue = give_queue(admin, 2)
    owner.create(job("first", 2, pod_template(), QUEUE))
    owner.create(job("late", 2, pod_template(), QUEUE))
    wait_until(lambda: value(tutti, "tutti_queue_usage", queue=queue, resource=GPU) == [2], what="usage is scraped")
    assert value(tutti, "tutti_queue_nominal", queue=queue, resource=GPU) == [2]
    wait_until(lambda: value(tutti, "tutti_queue_waiting_gangs", queue=queue) == [1], what="who waits is scraped")
    assert value(tutti, "tutti_queue_running_gangs", queue=queue) == [1]
    assert value(tutti, "tutti_admission_wait_seconds_count", queue=queue, priority_class="") == [1]
    assert value(tutti, "tutti_admitted_gangs_total", queue=queue) == [1]
