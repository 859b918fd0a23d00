"""Records of jobs as they are read, for tests that need no object."""

from dataclasses import replace
from typing import Any

from webhook.core.model.gang import Gang
from webhook.jobs.reading.record import JobRecord


def waiting_job(of: Gang, **facts: Any) -> JobRecord:
    """A suspended, marked Job that waits, unless ``facts`` say otherwise."""
    return replace(
        JobRecord(
            kind=of.kind,
            namespace=of.namespace,
            name=of.name,
            uid=of.uid,
            resource_version=1,
            created_seconds=of.created_seconds,
            gang=of,
            problem=None,
            queue_label=of.queue,
            owner=None,
            suspended=True,
            finished=None,
            active=False,
            ready=False,
            deleting=False,
            marked=True,
            restorable=True,
            managed_by_other=False,
            has_annotations=False,
        ),
        **facts,
    )
