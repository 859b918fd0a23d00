"""Every pod-bearing resource is in the table, and what is not is found."""

from tests.unit.server.review.discovery import unclassified
from webhook.jobs.kinds.registry import KINDS
from webhook.server.review.resources_table import Handling, ResourcesTable

TABLE = ResourcesTable((kind.group, kind.plural) for kind in KINDS.values())

SERVED = [
    ("", "pods"),
    ("", "pods/attach"),
    ("", "pods/binding"),
    ("", "pods/ephemeralcontainers"),
    ("", "pods/eviction"),
    ("", "pods/exec"),
    ("", "pods/log"),
    ("", "pods/portforward"),
    ("", "pods/proxy"),
    ("", "pods/resize"),
    ("", "pods/status"),
    ("", "configmaps"),
    ("", "replicationcontrollers/scale"),
    ("apps", "daemonsets"),
    ("apps", "deployments/scale"),
    ("batch", "jobs"),
    ("batch", "jobs/status"),
    ("batch", "cronjobs"),
    ("policy", "poddisruptionbudgets"),
]
"""A sample of what Kubernetes 1.36 serves."""


def test_what_kubernetes_serves_is_classified() -> None:
    assert unclassified(TABLE, SERVED) == []


def test_a_new_subresource_of_pods_or_of_a_known_group_is_found() -> None:
    new = [("", "pods/clone"), ("apps", "statefulsets/grow"), ("batch", "jobgroups")]
    assert unclassified(TABLE, [*SERVED, *new, ("example.com", "widgets")]) == new


def test_every_job_kind_is_handled_with_its_scale() -> None:
    for kind in KINDS.values():
        assert TABLE.handling(kind.group, kind.plural) is Handling.JOB
        assert TABLE.handling(kind.group, kind.plural, "scale") is Handling.SCALE
        assert TABLE.handling(kind.group, kind.plural, "status") is Handling.NONE


def test_what_is_let_pass_has_a_reason() -> None:
    assert all(row.why for row in TABLE.rows() if row.handling is Handling.NONE)


def test_the_unknown_is_not_classified() -> None:
    assert TABLE.handling("", "pods", "clone") is None
    assert TABLE.handling("example.com", "widgets") is None
