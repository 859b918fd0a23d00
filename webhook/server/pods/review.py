"""A pod review that was read, and what its decision may look at besides."""

from collections.abc import Callable
from dataclasses import dataclass

from webhook.cluster.view import View
from webhook.core.model.frozen import frozen
from webhook.core.notation import names
from webhook.jobs.compute_class.catalog import ComputeClassCatalog
from webhook.server.pods.tally import Tally
from webhook.server.review.answer import ALLOW, Answer, Refusal, deny
from webhook.server.review.bounds import UID_CHARS_MAX
from webhook.server.review.creators import Creators
from webhook.server.review.pod_facts import PodFacts, read
from webhook.server.review.settings import ReviewSettings
from webhook.untyped import paths
from webhook.untyped.values import seconds, text
from webhook.wire.admission_review import ReviewRequest
from webhook.wire.watch import version_number


@dataclass(frozen=True, slots=True)
class PodRules:
    """What the decision may look at besides the request."""

    view: View
    settings: ReviewSettings
    creators: Creators
    tally: Tally
    classes: ComputeClassCatalog
    unix_now: Callable[[], float]
    in_hub: bool
    """Jobs of some kinds are placed in other clusters."""


@frozen
class PodReview:
    """A review that was read: the pod as it would be, and as it was."""

    request: ReviewRequest
    pod: PodFacts
    old: PodFacts | None

    @property
    def tally_key(self) -> str:
        """What a pod is remembered by that was let pass; a dry run or an old API server shows no uid."""
        return self.pod.uid or f"review {self.request.uid}"

    @property
    def created_seconds(self) -> float:
        """When the API server took the pod in, by its own clock; 0 where it does not say so."""
        return seconds(paths.find(self.pod.document, ("metadata", "creationTimestamp")))

    @property
    def old_version(self) -> int:
        """The ``resourceVersion`` that is changed; 0 where it is not said."""
        document = {} if self.old is None else self.old.document
        return version_number(text(paths.find(document, ("metadata", "resourceVersion"))))


def read_review(request: ReviewRequest) -> PodReview | Answer:
    """Return the review's pods, or the answer where none is needed or possible. Raises Misshapen, FieldError."""
    if request.operation == "DELETE":
        return ALLOW
    if request.operation not in ("CREATE", "UPDATE"):
        return deny(Refusal.UNCLASSIFIED, f"operation {request.operation!r} on pods is not one Tutti registered", 400)
    if request.object is None:
        return deny(Refusal.MALFORMED, "request.object is missing", 422)
    if request.operation == "UPDATE" and request.old_object is None:
        return deny(Refusal.MALFORMED, "request.oldObject is missing", 422)
    pod = read(request.object)
    if not (pod.name or request.name):
        return deny(Refusal.MALFORMED, "the pod has neither a name nor a generateName", 422)
    if len(pod.uid) > UID_CHARS_MAX:
        return deny(Refusal.MALFORMED, f"metadata.uid has {len(pod.uid)} characters", 422)
    if pod.namespace not in ("", request.namespace):
        return deny(Refusal.MALFORMED, f"metadata.namespace {pod.namespace!r} is not {request.namespace!r}", 422)
    old = read(request.old_object) if request.operation == "UPDATE" and request.old_object is not None else None
    return PodReview(request, pod, old)


def is_fenced(view: View, namespace: str) -> bool:
    """Return whether loose pods of ``namespace`` are checked; a namespace not seen yet is."""
    labels = view.namespaces.get(namespace)
    return labels is None or labels.get(names.FENCED_NAMESPACE, "false") != "false"
