"""Watches our webhook registrations, and says at once when one asks for less than what ships (``registrations``).

Each stored state is judged, in order, so that a change is noticed even if it is put back before anybody looks. Each
replica counts in its metrics, and the leader writes events. States that were not seen, because watches end, show in
the object's generation, which the API server raises with each change of a webhook.
"""

import asyncio
import random
from collections import deque
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, Final

import structlog

from webhook import metrics
from webhook.controllers.reporting.events import THE_LEDGER, EventRecorder
from webhook.controllers.reporting.registration_faults import (
    NAME,
    announced,
    distrustful,
    lacks,
    own_groups,
    path_of,
    shipped,
    told,
)
from webhook.core.notation.counted import counted
from webhook.jobs.kinds.kind import JobKind
from webhook.kube.api import Api
from webhook.kube.informer import Informer
from webhook.kube.plain import Plain, plain

log = structlog.get_logger(__name__)

REASON: Final = "RegistrationChanged"
AGAIN_SECONDS: Final = 60.0
"""So often who has come to lead says what stands."""
WAITING_MAX: Final = 100
"""States that wait to be judged, which takes milliseconds each; of more the oldest count as not seen."""
_LOOK: Final = "check the audit log for who wrote it"


class RegistrationWatch:
    """Judges what is stored as it is stored."""

    def __init__(
        self,
        api: Api,
        recorder: EventRecorder,
        *,
        kinds: Mapping[str, JobKind],
        exempt: Collection[str],
        leading: Callable[[], bool],
        authorities: Callable[[], Collection[bytes]],
        rng: random.Random,
    ) -> None:
        """``authorities``: the certificates of those that sign ours; none where they are not known."""
        self._recorder = recorder
        self._own = own_groups(kinds)
        self._exempt = exempt
        self._leading = leading
        self._authorities = authorities
        self._expected = {document["kind"]: document for document in shipped()}
        self._waiting: deque[tuple[str, Plain | None]] = deque(maxlen=WAITING_MAX)
        self._wake = asyncio.Event()
        self._last: dict[str, Plain | None] = {}
        self._announced: set[str] = set()
        """Kinds whose configuration had an authority at some time: without one it is not in use yet."""
        self._faults: dict[str, list[str]] = {}
        self._told: dict[str, list[str]] = {}
        self._informers = {
            kind: Informer(
                api,
                path_of(kind),
                plain,
                rng=rng,
                field_selector=f"metadata.name={NAME}",
                on_change=partial(self._changed, kind),
            )
            for kind in self._expected
        }

    async def run(self) -> None:
        """Watch until cancelled. Where we may not read them nothing is known, and the log says so."""
        async with asyncio.TaskGroup() as tasks:
            for kind, informer in self._informers.items():
                tasks.create_task(informer.run(), name=f"registrations {kind}")
                tasks.create_task(self._begin(kind), name=f"registrations {kind} begin")
            tasks.create_task(self._judge_all(), name="registrations")

    def _changed(self, kind: str, old: Plain | None, new: Plain | None) -> None:
        self._waiting.append((kind, new))
        self._wake.set()

    async def _begin(self, kind: str) -> None:
        await self._informers[kind].synced.wait()
        if not self._informers[kind].records:
            self._changed(kind, None, None)

    async def _judge_all(self) -> None:
        while True:
            try:
                async with asyncio.timeout(AGAIN_SECONDS):
                    await self._wake.wait()
            except TimeoutError:
                for kind in self._faults:
                    self._tell(kind)
            self._wake.clear()
            while self._waiting:
                self._judge(*self._waiting.popleft())
                await asyncio.sleep(0)

    def _judge(self, kind: str, new: Plain | None) -> None:
        """Take in one state that was stored; None is that there was none."""
        last = self._last.get(kind)
        self._last[kind] = new
        if new is not None and last is not None and new.uid == last.uid:
            changes = _generation(new) - _generation(last)
            if changes == 0:
                return
            if changes > 1:
                self._missed(kind, changes - 1)
        before, self._faults[kind] = self._faults.get(kind, []), self._found(kind, new)
        metrics.REGISTRATION_FAULTS.set(sum(map(len, self._faults.values())))
        if before and not self._faults[kind]:
            metrics.REGISTRATION_LAPSES.inc()
            log.warning("registrations.put_back", kind=kind)
            self._note(f"{kind} {NAME} is complete again, after a while in which it asked for less; {_LOOK}")
        self._tell(kind)

    def _found(self, kind: str, new: Plain | None) -> list[str]:
        stored: Mapping[str, Any] = {} if new is None else new.document
        found = lacks(self._expected[kind], stored, self._own, self._exempt)
        if announced(stored):
            self._announced.add(kind)
        authorities = self._authorities() if kind in self._announced else ()
        if authorities:
            found += [
                f"{kind} {NAME}: webhook {name} trusts no authority that signs our certificates"
                for name in distrustful(stored, authorities)
            ]
        return found

    def _missed(self, kind: str, states: int) -> None:
        metrics.REGISTRATION_LAPSES.inc()
        log.warning("registrations.not_seen", kind=kind, states=states)
        unseen = counted(states, "version")
        self._note(f"{unseen} of {kind} {NAME} came and went while it could not be watched; {_LOOK}")

    def _tell(self, kind: str) -> None:
        found = self._faults[kind]
        if found == self._told.get(kind, []):
            return
        if found and self._leading():
            log.warning("registrations.changed", faults=found)
            self._note(told(found))
        if not found or self._leading():
            self._told[kind] = found

    def _note(self, text: str) -> None:
        if self._leading():
            self._recorder.note(THE_LEDGER, REASON, text, warning=True)


def _generation(state: Plain) -> int:
    return int(state.document["metadata"].get("generation") or 0)
