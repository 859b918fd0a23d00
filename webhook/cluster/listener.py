"""The interface of those who are told what the feeds read."""

from webhook.core.ledger.record import Changes
from webhook.core.model.pods import PodRecord
from webhook.jobs.reading.record import JobRecord


class Listener:
    """Base of those who want to know what changed: they override what concerns them."""

    def job_changed(self, old: JobRecord | None, new: JobRecord | None) -> None:
        """Take note of a job object that came, changed or went."""

    def pod_changed(self, old: PodRecord | None, new: PodRecord | None) -> None:
        """Take note of a pod that came, changed or went."""

    def fences_changed(self, namespace: str) -> None:
        """Take note of a ResourceQuota."""

    def nodes_changed(self) -> None:
        """Take note of a node that came, went, or is not what it was; heartbeats are no change."""

    def pod_group_changed(self, namespace: str, name: str) -> None:
        """Take note of a PodGroup."""

    def namespace_changed(self, name: str) -> None:
        """Take note of a namespace and its labels."""

    def policy_changed(self) -> None:
        """Take note that the view has another policy."""

    def ledger_changed(self, changes: Changes | None = None) -> None:
        """Take note that the ledger was read, and of how it differs from the one before where that is known."""

    def page_deleted(self, name: str) -> None:
        """Take note that a page of the ledger is gone, listed or not."""

    def page_read(self, name: str, resource_version: int) -> None:
        """Take note that a page of the ledger was read as it stands."""

    def unread_changed(self) -> None:
        """Take note that there is more or less of what cannot be read (``View.unread``)."""
