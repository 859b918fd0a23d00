"""Another leader takes over: it knows the ledger, as text, and who waits."""

from collections.abc import Container, Mapping
from dataclasses import replace

from tests.unit.core.worlds import LABELS, World
from webhook.core.ledger import text as ledger_text
from webhook.core.ledger.record import Ledger
from webhook.core.model.gang import Gang
from webhook.core.scheduler.engine import Engine


def stored(engine: Engine) -> Ledger:
    """Return what the ledger says once the plans of ``engine`` are written, as another leader reads it."""
    allocations = engine.state.allocations
    entries = {
        uid: replace(allocation.reservation, stopping="Preempted" if uid in allocations.stopping else None)
        for uid, allocation in allocations.by_uid.items()
    }
    return ledger_text.decode(ledger_text.encode(Ledger(1, 1, entries, engine.claims(), engine.bookings())))


def next_leader(world: World, known: Mapping[str, Gang], unread: Container[str] = ()) -> Engine:
    """Return the engine of a leader that takes over from the one of ``world``; ``known`` are all gangs by uid.

    Of those that wait it has not read the jobs of ``unread`` yet.
    """
    engine, ledger = Engine(world.engine.state.settings), stored(world.engine)
    engine.set_policy(world.policy, LABELS, world.now)
    for uid, reservation in ledger.entries.items():
        engine.restore(reservation, known[uid])
    engine.restore_claims(ledger.claims)
    engine.restore_bookings(ledger.bookings)
    for waiting in world.engine.waiting():
        if waiting.uid not in unread:
            engine.submit(known[waiting.uid], world.now)
    return engine
