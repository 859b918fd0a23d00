"""``kube.api.Api`` in process: the production code's way into the simulated server, under faults where asked for.

One ``SimulatedApi`` is one process's connection. It can be frozen and thawed (SIGSTOP, a partition that heals) and
severed for ever (SIGKILL): from then on nothing it was asked reaches the server or returns, not even what its owner
does while it is being cancelled.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import nullcontext
from typing import Any, Literal

import orjson

from webhook import errors
from webhook.core.model.frozen import frozen
from webhook.kube.api import JSON, REQUEST_TIMEOUT_SECONDS
from webhook.kube.statuses import refusal
from webhook.laboratory.simulated.faults import FaultPlan, Outcome
from webhook.laboratory.simulated.requests.identity import ADMIN, User
from webhook.laboratory.simulated.requests.refusals import Refused
from webhook.laboratory.simulated.requests.router import Answer, Request, Router


@frozen
class WritePoint:
    """A moment at which a process may be made to crash: just before a write is sent or just after it was answered."""

    number: int
    """Counts this connection's writes from 1."""
    phase: Literal["before", "after"]
    method: str
    path: str


class SimulatedApi:
    """One identity's connection to a simulated server."""

    def __init__(
        self,
        router: Router,
        user: User = ADMIN,
        faults: FaultPlan | None = None,
        on_write: Callable[[WritePoint], None] | None = None,
        on_date: Callable[[float], object] | None = None,
    ) -> None:
        self._on_date = on_date
        self.user = user
        self.faults = faults
        self.writes = 0
        self._router = router
        self._on_write = on_write
        self._thawed = asyncio.Event()
        self._thawed.set()
        self._severed = False
        self._cut_off = False
        """It is severed or frozen."""
        self._under_way: set[asyncio.Task[Any]] = set()

    # -- the seam ---------------------------------------------------------------------------------------------------

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = JSON,
        accept: str = JSON,
        timeout_seconds: float = REQUEST_TIMEOUT_SECONDS,
    ) -> bytes:
        """Send one request and return the body of a 2xx answer; see ``kube.api.Api.request``."""
        request = Request(method, path, query or {}, body or b"", content_type, self.user)
        if method == "GET" and self.faults is None:
            if self._cut_off:
                await self._alive()
            return self._answered(await self._router.handle(request), accept, write=False)
        write = method != "GET"
        number = self._number(write)
        self._point(number, "before", request)
        if self._cut_off:
            await self._alive()
        try:
            # No webhook is asked about a read: it is under way for as long as the link takes.
            bounded = write or self.faults is None or self.faults.longest_seconds >= timeout_seconds
            async with asyncio.timeout(timeout_seconds) if bounded else nullcontext():
                answer = await self._exchange(request, write)
        except TimeoutError as error:
            await self._alive()
            raise errors.Unavailable(
                0, "Timeout", f"{method} {path}: no answer in time", outcome_unknown=write
            ) from error
        except errors.ApiError:
            await self._alive()
            raise
        self._point(number, "after", request)
        if self._cut_off:
            await self._alive()
        return self._answered(answer, accept, write=write)

    def _answered(self, answer: Answer, accept: str, *, write: bool) -> bytes:
        if self._on_date is not None:
            self._on_date(float(int(self._router.server.clock.now())))
        return _body(answer, accept, write=write)

    async def watch(self, path: str, *, query: Mapping[str, str], idle_seconds: float) -> AsyncIterator[bytes]:
        """Yield the lines of a watch until it ends; see ``kube.api.Api.watch``."""
        await self._alive()
        plan = self.faults
        if plan is not None:
            await self._start_watch(plan)
        try:
            opened = self._router.watch(Request("GET", path, {**query, "watch": "true"}, user=self.user))
        except Refused as refused:
            raise refusal(refused.code, orjson.dumps(refused.status), is_write=False) from refused
        try:
            async for line in opened.lines(idle_seconds):
                if plan is not None:
                    if plan.chance("watch stalled", plan.rates.watch_stalled):
                        await asyncio.sleep(idle_seconds)
                        break
                    if pause := plan.pause_seconds():
                        await asyncio.sleep(pause)
                if self._cut_off:
                    await self._alive()
                yield line
                if plan is not None and plan.chance("watch ended", plan.rates.watch_ended):
                    return
            await self._alive()
        finally:
            opened.end()

    async def close(self) -> None:
        """Release the connection; writes that are under way still arrive."""

    # -- what a fault simulation does to a process --------------------------------------------------------------------

    def sever(self) -> None:
        """Cut the connection for ever, as when its process is killed: nothing sent from now on arrives or returns.

        What was sent before is still applied; nobody learns of it.
        """
        self._severed = self._cut_off = True

    def freeze(self) -> None:
        """Stop delivering in both directions until ``thaw``; what waits is delivered then."""
        self._thawed.clear()
        self._cut_off = True

    def thaw(self) -> None:
        """Deliver again."""
        self._thawed.set()
        self._cut_off = self._severed

    # -- inside -----------------------------------------------------------------------------------------------------

    async def _alive(self) -> None:
        if self._severed:
            await asyncio.Future()
        if not self._thawed.is_set():
            await self._thawed.wait()
            await self._alive()

    def _number(self, write: bool) -> int:
        self.writes += write
        return self.writes if write else 0

    def _point(self, number: int, phase: Literal["before", "after"], request: Request) -> None:
        if number and self._on_write is not None and not self._severed:
            self._on_write(WritePoint(number, phase, request.method, request.path))

    async def _exchange(self, request: Request, write: bool) -> Answer:
        plan = self.faults
        if plan is None:
            return await self._sent(self._router.handle(request))
        outcome, restores = plan.request(write), self._restores
        await asyncio.sleep(plan.delay_seconds())
        if self._restores != restores:
            raise _reset(write)
        match outcome:
            case Outcome.THROTTLED:
                raise errors.Unavailable(429, "TooManyRequests", "injected: too many requests, please try again later")
            case Outcome.UNAVAILABLE:
                raise errors.Unavailable(503, "ServiceUnavailable", "injected: apiserver not ready")
            case Outcome.CONFLICTED:
                raise errors.Conflict(409, "Conflict", "injected: the object has been modified")
            case Outcome.DROPPED:
                raise _reset(write)
            case Outcome.LATE:
                self._later(self._after(plan.late_seconds(), request))
                raise errors.Unavailable(0, "Timeout", "injected: no answer in time", outcome_unknown=write)
        # What changes nothing needs no task that goes on when the caller gives up or dies.
        answer = await (self._sent(self._router.handle(request)) if write else self._router.handle(request))
        if outcome is Outcome.DUPLICATED:
            self._later(self._after(plan.late_seconds(), request))
        await asyncio.sleep(plan.delay_seconds())
        if outcome is Outcome.REPLY_LOST:
            raise _reset(write)
        return answer

    async def _sent(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        """Let the server finish what it was sent even when the caller gives up or dies."""
        answer: Answer = await asyncio.shield(self._later(work))
        return answer

    async def _after(self, seconds: float, request: Request) -> Answer | None:
        restores = self._restores
        await asyncio.sleep(seconds)
        return await self._router.handle(request) if self._restores == restores else None

    @property
    def _restores(self) -> int:
        """How often the API server was stopped for a backup; what was on its way to it then never arrives."""
        return self._router.server.store.restores

    def _later(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(work)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return task

    async def _start_watch(self, plan: FaultPlan) -> None:
        await asyncio.sleep(plan.delay_seconds())
        await self._alive()
        if plan.chance("watch gone", plan.rates.watch_gone):
            raise errors.Gone(410, "Expired", "injected: too old resource version")
        if plan.chance("watch refused", plan.rates.unavailable):
            raise errors.Unavailable(503, "ServiceUnavailable", "injected: apiserver not ready")


def _reset(write: bool) -> errors.Unavailable:
    return errors.Unavailable(0, "ConnectionFailed", "injected: connection reset by peer", outcome_unknown=write)


def _body(answer: Answer, accept: str, *, write: bool) -> bytes:
    if answer.status < 400:
        return answer.body if accept == JSON else _metadata(answer.body)
    raise refusal(answer.status, answer.body, is_write=write)


def _metadata(body: bytes) -> bytes:
    """Return what is answered to who accepts ``METADATA``."""
    found = orjson.loads(body)
    if found["kind"] == "Status":
        return body
    return orjson.dumps(
        {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": found["metadata"]}
    )
