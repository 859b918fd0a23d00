"""The decision path without a web server: body in, HTTP status and body out.

``server.http.app`` puts it on a socket; the simulation calls it directly. Decisions are synchronous and made from
memory; only three things are ever waited for, each bounded: a ledger as new as the object says, the replica that owns a
namespace, and the settling time after replicas changed.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from math import inf
from time import perf_counter
from typing import Final, Protocol, TypeVar

import structlog

from webhook.clock import Clock, SystemClock
from webhook.cluster.view import NAMESPACE_QUEUES, POLICY, View
from webhook.core.model.gang import Gang
from webhook.core.reasons.reasons import Reason
from webhook.dialects.compiler import PolicyCompiler
from webhook.errors import RequestError
from webhook.jobs.compute_class.catalog import ComputeClassCatalog
from webhook.jobs.kinds.kind import JobKind
from webhook.jobs.kinds.registry import KINDS
from webhook.jobs.pricing.context import ReadContext
from webhook.jobs.reading.gating import gated_by_namespace, is_child, queue_label
from webhook.server.jobs import children, mutate
from webhook.server.jobs import validate as validate_jobs
from webhook.server.pods import validate as validate_pods
from webhook.server.pods.placed import placed
from webhook.server.pods.review import PodReview, PodRules, read_review
from webhook.server.pods.tally import Tally
from webhook.server.review import bounds, class_checks, metrics
from webhook.server.review.answer import ALLOW, Answer, Refusal, deny
from webhook.server.review.creators import Creators
from webhook.server.review.decision_log import TEXT_CHARS_MAX, DecisionLog
from webhook.server.review.job_facts import JobRules
from webhook.server.review.pod_facts import Misshapen
from webhook.server.review.resources_table import Handling, ResourcesTable
from webhook.server.review.settings import ReviewSettings
from webhook.server.sharding.forward import Forwarder
from webhook.server.validate_policy import PolicyObject, PolicyObjects
from webhook.server.validate_policy import judge as judge_policy
from webhook.wire.admission_review import FieldError, ReviewRequest, decode, encode_allowed, encode_denied
from webhook.wire.nesting import LEVELS_MAX, LONG_BYTES, WRAPPING_LEVELS, shallow_with_pauses

log = structlog.get_logger(__name__)

Decided = Answer | tuple[int, bytes]
"""Our own answer, or the whole answer of the owning replica."""


T = TypeVar("T")


class Beside(Protocol):
    """Runs what takes long without holding up the other reviews."""

    def __call__(self, work: Callable[[], T], /) -> Awaitable[T]:
        """Return what ``work`` returns."""


async def _at_once(work: Callable[[], T]) -> T:
    return work()


POLICY_PATH: Final = "/validate/policy"


class ReviewHandler:
    """Decides admission reviews from one view of one cluster."""

    def __init__(
        self,
        view: View,
        settings: ReviewSettings | None = None,
        *,
        kinds: Mapping[str, JobKind] = KINDS,
        context: Callable[[], ReadContext] = ReadContext,
        potential: Callable[[Gang], Reason | None] = lambda gang: None,
        policy_objects: PolicyObjects = lambda plural: (),
        forwarder: Forwarder | None = None,
        classes: ComputeClassCatalog | None = None,
        pods_heard_seconds: Callable[[], float] = lambda: inf,
        beside: Beside = _at_once,
        counting: Beside = _at_once,
        clock: Clock | None = None,
    ) -> None:
        """``beside`` runs the judging of policy, ``counting`` the counting of what long reviews hold: not after the
        former, which may take seconds. ``clock`` tells the time as the API server writes it.
        """
        self.view = view
        self.settings = settings or ReviewSettings()
        self.forwarder = forwarder
        self.table = ResourcesTable((kind.group, kind.plural) for kind in kinds.values())
        self.tally = Tally(view.fences.pod, pods_heard_seconds)
        by_resource = {(kind.group, kind.plural): kind for kind in kinds.values()}
        classes = classes or class_checks.shipped()
        creators = Creators(kinds)
        in_hub = any(kind.given_manager for kind in kinds.values())
        self._jobs = JobRules(view, self.settings, kinds, creators, by_resource, context, potential, classes, in_hub)
        unix_now = (clock or SystemClock()).now
        self._pods = PodRules(view, self.settings, creators, self.tally, classes, unix_now, in_hub)
        self._policy_objects = policy_objects
        self._policy_compiler = PolicyCompiler(hub=in_hub)
        self._judging_policy = 0
        self._beside = beside
        self._counting = counting
        self.decisions = DecisionLog()
        self._waiting = 0
        self._endpoints: Mapping[str, Callable[[ReviewRequest], Answer | None]] = {
            "/mutate/jobs": self._mutate_jobs,
            "/mutate/pods": self._mutate_pods,
            "/validate/jobs": self._validate_jobs,
            "/validate/pods": self._validate_pods,
            POLICY_PATH: lambda request: None,
        }

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths that reviews are posted to."""
        return tuple(self._endpoints)

    @property
    def waiting(self) -> int:
        """Reviews that wait for the ledger or a peer now."""
        return self._waiting

    async def review(
        self, path: str, body: bytes, timeout_seconds: float, *, hopped: bool = False
    ) -> tuple[int, bytes]:
        """Return the HTTP status and body that answer a review posted to ``path``, within ``timeout_seconds``.

        ``hopped``: another replica passed it on, so it is decided here. Anything with a readable uid is answered
        inside a review, whatever goes wrong.
        """
        decide = self._endpoints.get(path)
        if decide is None:
            return 404, b"no such path"
        started, short = perf_counter(), len(body) <= LONG_BYTES
        try:
            request = decode(body) if short else await _decoded_with_pauses(body)
        except FieldError as error:
            return 200, self._unread(path, error, started)
        except RequestError as error:
            return self._bad_request(path, error)
        try:
            if path == POLICY_PATH:
                unreasonable = None
            elif short:
                unreasonable = _unreasonable(path, request, body)
            else:
                unreasonable = await self._looked_at(path, request, body, timeout_seconds)
            decided: Decided | None = unreasonable or decide(request)
            if decided is None:
                decided = await self._wait_and_decide(path, request, body, timeout_seconds, hopped)
        except (FieldError, Misshapen) as error:
            decided = deny(Refusal.MALFORMED, str(error), 422)
        except RequestError as error:
            return self._bad_request(path, error)
        except Exception:
            log.exception("review.broken", endpoint=path, uid=request.uid[:TEXT_CHARS_MAX])
            decided = deny(Refusal.BROKEN, "Tutti failed to decide this request; its log has the reason", 500)
        if isinstance(decided, tuple):
            metrics.count_review(path, "forwarded", perf_counter() - started)
            return decided
        if self.view.hides_neighbours and request.namespace:
            decided = self._told(decided, request.namespace)
        answer = _encode(request.uid, decided)
        self._line(path, request, decided, perf_counter() - started)
        return 200, answer

    def _told(self, answer: Answer, namespace: str) -> Answer:
        """Return an answer as it may be told in a namespace; who writes what lies in none is an administrator."""
        warnings = tuple(self.view.told(each, namespace) for each in answer.warnings)
        return replace(answer, message=self.view.told(answer.message, namespace), warnings=warnings)

    # -- endpoints: an answer at once, or None when something has to be waited for ------------------------------------

    def _mutate_jobs(self, request: ReviewRequest) -> Answer:
        if self._exempt(request):
            return ALLOW
        if request.operation == "UPDATE" and not self.view.synced and request.username != self.settings.account:
            # Whose child something is, and whether that is adopted, is not known yet.
            return self._not_ready()
        return mutate.mutate(request, self._jobs)

    def _mutate_pods(self, request: ReviewRequest) -> Answer:
        if self._exempt(request):
            return ALLOW
        return placed(request, self.view) or mutate.mutate_pod(request, self._jobs)

    def _validate_jobs(self, request: ReviewRequest) -> Answer | None:
        if self._exempt(request) or (request.operation == "UPDATE" and request.username == self.settings.account):
            # What we write is fenced by resourceVersions. It is sent so that nothing starts while nobody answers.
            return ALLOW
        if not self.view.synced and request.username != self.settings.account:
            return self._not_ready()
        unread = self._needs_unread(request)
        if unread is not None:
            return unread
        if children.wants_ledger(request, self._jobs) is not None:
            return None
        return validate_jobs.validate(request, self._jobs, self.table)

    def _validate_pods(self, request: ReviewRequest) -> Answer | None:
        if self._exempt(request):
            return ALLOW
        if self.table.handling(request.group, request.resource, request.subresource) is not Handling.POD:
            message = f"{request.resource!r} {request.subresource!r} is not a pod; correct the registration"
            return deny(Refusal.UNCLASSIFIED, message, 400)
        if not self.view.synced and not self._harmless(request):
            return self._not_ready()
        review = read_review(request)
        if isinstance(review, Answer):
            return review
        alone = self.forwarder is None or not validate_pods.wants_owner(review, self._pods)
        if alone and validate_pods.wants_ledger(review, self._pods) is None:
            return validate_pods.decide(review, self._pods, self._now())
        return None

    def _exempt(self, request: ReviewRequest) -> bool:
        return request.namespace in self.settings.exempt_namespaces

    def _harmless(self, request: ReviewRequest) -> bool:
        return request.operation == "DELETE" or request.username == self.settings.account

    def _not_ready(self) -> Answer:
        missing = ", ".join(sorted(self.view.unsynced)[:3])
        return deny(Refusal.NOT_READY, f"Tutti has just started and is still reading {missing}; try again", 503)

    def _needs_unread(self, request: ReviewRequest) -> Answer | None:
        """Refuse a new job of a kind that cannot be read, and one when nobody knows whether and where it waits."""
        unread = self.view.unread
        if not unread or request.operation != "CREATE" or self._harmless(request):
            return None
        topic, obj = request.kind, request.object or {}
        kind = self._jobs.by_resource.get((request.group, request.resource))
        if topic not in unread and kind is not None and queue_label(obj) is None:
            if is_child(kind, obj, self._jobs.kinds, request.username):
                return None
            gated = gated_by_namespace(request.namespace, self.view.namespaces.get(request.namespace, {}), ())
            topic = POLICY if gated and POLICY in unread else NAMESPACE_QUEUES
        why = unread.get(topic)
        if why is None:
            return None
        return deny(Refusal.NOT_READY, f"Tutti cannot read {topic}, which it needs to judge this job: {why}", 503)

    # -- what is waited for -------------------------------------------------------------------------------------------

    async def _wait_and_decide(
        self, path: str, request: ReviewRequest, body: bytes, timeout_seconds: float, hopped: bool
    ) -> Decided:
        if self._waiting >= self.settings.in_flight_max:
            return _BUSY
        self._waiting += 1
        metrics.WAITING.set(self._waiting)
        try:
            deadline = self._now() + timeout_seconds
            if path == POLICY_PATH:
                return await self._decide_policy(request, body, timeout_seconds)
            if path == "/validate/pods":
                return await self._decide_pod(request, body, deadline, hopped)
            await self._ledger(children.wants_ledger(request, self._jobs), deadline)
            return validate_jobs.validate(request, self._jobs, self.table)
        finally:
            self._waiting -= 1
            metrics.WAITING.set(self._waiting)

    async def _decide_policy(self, request: ReviewRequest, body: bytes, timeout_seconds: float) -> Answer:
        if self._judging_policy >= self.settings.policy_in_flight_max:
            return _BUSY
        stored = self._policy_objects(request.resource)
        self._judging_policy += 1
        try:
            async with asyncio.timeout(timeout_seconds):
                return await self._beside(partial(self._judge_policy, request, body, stored))
        except TimeoutError:
            return _BUSY
        finally:
            self._judging_policy -= 1

    def _judge_policy(self, request: ReviewRequest, body: bytes, stored: Iterable[PolicyObject]) -> Answer:
        """Counting the values of some megabytes takes too long for the loop, too."""
        unreasonable = _unreasonable(POLICY_PATH, request, body)
        return unreasonable or judge_policy(request, self.view, stored, self._policy_compiler)

    async def _decide_pod(self, request: ReviewRequest, body: bytes, deadline: float, hopped: bool) -> Decided:
        review = read_review(request)
        assert isinstance(review, PodReview), "answered before"
        forwarder = self.forwarder
        if forwarder is not None and validate_pods.wants_owner(review, self._pods):
            if not hopped:
                budget = max(0.05, (deadline - self._now()) * self.settings.forward_share)
                passed_on = await forwarder.ask_owner(request.namespace, "/validate/pods", body, budget)
                if passed_on is not None:
                    metrics.FORWARDED.inc()
                    return passed_on
            await self._settle(forwarder.ownership.unsettled_seconds(request.namespace, self._now()), deadline)
        await self._ledger(validate_pods.wants_ledger(review, self._pods), deadline, review.pod.gang or "")
        return validate_pods.decide(review, self._pods, self._now())

    async def _looked_at(self, path: str, request: ReviewRequest, body: bytes, timeout_seconds: float) -> Answer | None:
        """Return the refusal of a long review that is unreasonable, and have its objects decoded where it is not.

        15 ms a megabyte are more than the others can wait.
        """
        try:
            async with asyncio.timeout(timeout_seconds):
                unreasonable = await self._counting(partial(_unreasonable, path, request, body))
        except TimeoutError:
            return _BUSY
        if unreasonable is None:
            await _read_apart(request)
        return unreasonable

    async def _settle(self, seconds: float, deadline: float) -> None:
        if seconds > 0:
            await asyncio.sleep(min(seconds, max(0.0, deadline - self._now())))

    async def _ledger(self, version: tuple[int, int] | None, deadline: float, gang: str = "") -> None:
        if version is not None:
            metrics.LEDGER_WAITS.inc()
            longest = min(self.settings.ledger_wait_seconds, max(0.0, deadline - self._now()))
            await self.view.wait_for_ledger(version, longest, gang)

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()

    # -- the record of it ---------------------------------------------------------------------------------------------

    def _unread(self, path: str, error: FieldError, started: float) -> bytes:
        metrics.count_review(path, Refusal.MALFORMED, perf_counter() - started)
        log.info("review", endpoint=path, outcome=Refusal.MALFORMED, uid=error.uid[:TEXT_CHARS_MAX], message=str(error))
        return encode_denied(error.uid, error.code, str(error))

    @staticmethod
    def _bad_request(path: str, error: RequestError) -> tuple[int, bytes]:
        metrics.count_bad_request(error.http_status)
        log.info("review.unreadable", endpoint=path, status=error.http_status, message=str(error)[:TEXT_CHARS_MAX])
        return error.http_status, str(error).encode("utf-8", "replace")

    def _line(self, path: str, request: ReviewRequest, answer: Answer, seconds: float) -> None:
        metrics.count_review(path, answer.outcome, seconds)
        self.decisions.note(path, request, answer, seconds)


_BUSY: Final = deny(Refusal.BUSY, "Tutti has too many requests in flight; try again", 429)


async def _decoded_with_pauses(body: bytes) -> ReviewRequest:
    """Return the request of a long review; others get their turn while what is too deep is cut from it."""
    return decode(await shallow_with_pauses(body, LEVELS_MAX + WRAPPING_LEVELS), cut=True)


async def _read_apart(request: ReviewRequest) -> None:
    """Have both objects of a long review decoded, each in a turn of its own. What is wrong with one is told by whoever
    asks for it.
    """
    for part in ("object", "old_object"):
        await asyncio.sleep(0)
        with contextlib.suppress(FieldError, RequestError):
            getattr(request, part)
    await asyncio.sleep(0)


def _unreasonable(path: str, request: ReviewRequest, body: bytes) -> Answer | None:
    """Return the refusal of a review that nobody has to look into: the API server does not send such."""
    values_max = bounds.POLICY_VALUES_MAX if path == POLICY_PATH else bounds.VALUES_MAX
    why = bounds.overlong(request) or bounds.crowded(body, values_max)
    return None if why is None else deny(Refusal.MALFORMED, why, 422)


def _encode(uid: str, answer: Answer) -> bytes:
    if answer.allowed:
        return encode_allowed(uid, answer.warnings, answer.patch)
    return encode_denied(uid, answer.code, answer.message, answer.warnings)
