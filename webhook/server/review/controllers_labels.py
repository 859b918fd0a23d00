"""Labels by which controllers find what they made: a change of one makes the controller let go of it, or fail on it.

A pod that its controller has let go of runs on when its gang is stopped; so do the pods of a Job whose JobSet's
controller cannot read what it wrote on that Job.
"""

from collections.abc import Mapping
from typing import Any, Final

from webhook.untyped import paths

BARE_LABELS: Final = ("controller-uid", "job-name", "spark-app-selector", "spark-role")
"""Labels without a domain by which controllers find their pods."""
APP_LABELS: Final = "app.kubernetes.io/"
"""These have a domain and are their users' own."""


def controllers_label_changed(now: Mapping[str, Any] | None, before: Mapping[str, Any] | None) -> str | None:
    """Return a label that says whose an object is, if it would change or go. Further labels are anybody's."""
    new, old = (paths.find_mapping(each, ("metadata", "labels")) for each in (now, before))
    changed = (key for key, value in old.items() if new.get(key) != value)
    return next((key for key in changed if key in BARE_LABELS or ("/" in key and not key.startswith(APP_LABELS))), None)
