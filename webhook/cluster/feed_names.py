"""What feeds are called: in logs, in metrics and where one is asked for."""

from webhook.dialects.registry import PolicyResource
from webhook.jobs.kinds.kind import JobKind


def job_feed(kind: JobKind) -> str:
    """Return the name of the feed of jobs of a kind in one version."""
    return f"{kind.key}/{kind.version}"


def policy_feed(resource: PolicyResource, version: str) -> str:
    """Return the name of the feed of a policy resource in one version."""
    return f"{resource.plural}.{version}.{resource.group}"
