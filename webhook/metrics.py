"""Every metric but those of the webhook alone, with its help text; docs/metrics.md is written from these.

Labels are few and bounded: never a namespace, a gang or anything users write. Queues and priority classes are named by
administrators; only so many of them have series of their own, and the rest share one.
"""

from collections.abc import Collection, Iterable
from typing import Final

from prometheus_client import Counter, Gauge, Histogram

QUEUES_MAX: Final = 500
CLASSES_MAX: Final = 10
OTHERS: Final = "(others)"
"""Stands for all queues, or priority classes, beyond the first so many by name."""

LEDGER_OUTCOMES: Final = ("written", "conflict", "unavailable", "refused")
"""What becomes of a write to the ledger."""
TERMS_END: Final = ("lease lost", "refused", "bug")
"""Why a term ends while the process goes on."""

ADMITTED = Counter("tutti_admitted_gangs_total", "Gangs admitted, by queue.", ["queue"])
EVICTED = Counter(
    "tutti_evicted_gangs_total",
    "Gangs stopped after admission, by queue and reason; docs/operating.md has those.",
    ["queue", "reason"],
)
WAITING = Gauge("tutti_waiting_gangs", "Gangs that wait, by reason; docs/operating.md has those.", ["reason"])
RESERVATIONS = Gauge("tutti_reservations", "Entries in the ledger; 0 while this replica does not lead.")
LEDGER_BYTES = Gauge(
    "tutti_ledger_bytes", "Size of all reservations in the ledger; 0 while this replica does not lead."
)
LEDGER_PAGES = Gauge(
    "tutti_ledger_pages", "Objects that hold reservations, besides the index; 0 while this replica does not lead."
)
LEDGER_WRITES = Counter(
    "tutti_ledger_writes_total",
    "Writes to the ledger, by outcome: written; conflict, something else had written that object (an occasional one is "
    "normal); unavailable, the API server is overloaded or did not answer; refused, by a policy, a missing right or a "
    "limit.",
    ["outcome"],
)
LEDGER_SENT = Counter("tutti_ledger_sent_bytes_total", "Bytes of all writes to the ledger, as they were sent.")
LEDGER_REBUILDS = Counter("tutti_ledger_rebuilds_total", "Rebuilds of a missing or corrupt ledger; should not grow.")
LEDGER_REBUILDING = Gauge(
    "tutti_ledger_rebuilding",
    "1 while this replica, which leads, rebuilds the ledger: nothing is admitted until that is done.",
)
LEDGER_UNTRUSTED = Gauge(
    "tutti_ledger_untrusted",
    "1 while this process finds the ledger gone or cannot read it: pods of gangs are refused beyond what was reserved "
    "when it was read last.",
)
LEADING = Gauge("tutti_leading", "1 while this replica leads.")
STEPPED_DOWN = Counter(
    "tutti_stepped_down_total",
    "Terms that ended while the process went on, by why: it lost the lease (lease lost), may not write the ledger "
    "(refused), or met a bug (bug).",
    ["why"],
)
LEADING_DENIED = Gauge(
    "tutti_leading_denied",
    "1 while this replica may not read or take over the ledger: it tries again within a minute.",
)
EPOCH = Gauge("tutti_ledger_epoch", "Number of this replica's last term; it grows at every take-over.")
CYCLE_SECONDS = Histogram(
    "tutti_cycle_duration_seconds",
    "Time of one decision cycle without its I/O.",
    buckets=(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5),
)
EFFECTS = Counter(
    "tutti_effects_total",
    "Writes to jobs and to pods of gangs, by effect and outcome. Effects: start, lift, stop, suspend, delete pods, "
    "void, clear, restore, adopt, grow, rebuild. Outcomes: stored; conflict or notfound, it had changed or was gone; "
    "forbidden or invalid, the API server or another webhook refuses it; denied, it is refused as if the object were "
    "another; unavailable, the API server or a webhook that it asks did not answer; gone or toolarge, which should not "
    "occur.",
    ["effect", "outcome"],
)
WAIT_SECONDS = Histogram(
    "tutti_admission_wait_seconds",
    "Time from a gang's place in the queue to its admission, by queue and priority class.",
    ["queue", "priority_class"],
    buckets=(0.1, 0.5, 1, 5, 30, 60, 300, 900, 3600, 14_400, 86_400),
)
BROKEN_JOBS = Counter(
    "tutti_broken_jobs_total",
    "Attempts at a job that hit a bug. The log has each cause once, with a traceback; other jobs are not affected.",
)
REGISTRATION_FAULTS = Gauge(
    "tutti_registration_faults",
    "Places where our webhook registrations ask for less than those that ship with this release, or ask another"
    " server: jobs may bypass their queues. tutti status names them; apply the manifests again.",
)
REGISTRATION_LAPSES = Counter(
    "tutti_registration_lapses_total",
    "How often one of our webhook registrations was weakened and put back, or may have been while nobody watched."
    " The audit log says who wrote it.",
)
UNREADABLE_OBJECTS = Counter(
    "tutti_unreadable_objects_total",
    "Objects whose stored state could not be read, by what is watched; the log names each and why. "
    "What was read before is kept; a job that could never be read waits.",
    ["kind"],
)
UNREAD_KINDS = Gauge(
    "tutti_unread_kinds",
    "1 while the API server refuses to list this kind:"
    " check the conversion webhook of the CRD, and our rights. "
    "Jobs that cannot be judged without it wait (KindUnread) or are refused; others are not affected. "
    "Policy and nodes stay as they were last read.",
    ["kind"],
)
OFFERS = Counter(
    "tutti_fleet_offers_total",
    "Finished offers of gangs to a member of a fleet, by outcome: granted, moved to another member, or withdrawn.",
    ["member", "outcome"],
)
GRANTS = Counter(
    "tutti_fleet_grants_total",
    "Gangs that were granted to a member and taken back, by outcome: ended, or failed.",
    ["member", "outcome"],
)
MEMBER_UNREACHABLE = Gauge(
    "tutti_fleet_member_unreachable",
    "1 while a member of a fleet does not answer its hub, its answer is too large or cannot be used, or nobody leads "
    "its Tutti.",
    ["member"],
)
UNREADABLE_DISPATCHES = Gauge(
    "tutti_fleet_unreadable_dispatches",
    "Jobs of a hub whose record cannot be read: they are offered to no member.",
)
CREDENTIALS_EXPIRE = Gauge(
    "tutti_fleet_credentials_expire_timestamp_seconds",
    "Unix time until which the hub's token or certificate for a member of a fleet is valid.",
    ["member"],
)
CREDENTIALS_RENEW = Gauge(
    "tutti_fleet_credentials_renew_timestamp_seconds",
    "Unix time from which the hub's token or certificate for a member of a fleet should be renewed: a week before its "
    "end, or when two thirds of its lifetime are over, whichever is later.",
    ["member"],
)
EVENTS_DROPPED = Counter("tutti_events_dropped_total", "Kubernetes events not written because too many waited.")


# What grows from nothing grows by nothing, as Prometheus sees it: these are there from the start.
for _outcome in LEDGER_OUTCOMES:
    LEDGER_WRITES.labels(_outcome)
for _why in TERMS_END:
    STEPPED_DOWN.labels(_why)

_QUEUE: Final = ["queue", "cohort", "flavor", "resource"]
_COHORT: Final = ["cohort", "parent", "flavor", "resource"]
QUEUE_NOMINAL = Gauge("tutti_queue_nominal", "The nominal quota of a queue, in units of the resource.", _QUEUE)
QUEUE_USAGE = Gauge("tutti_queue_usage", "What the gangs of a queue hold.", _QUEUE)
QUEUE_BORROWED = Gauge("tutti_queue_borrowed", "What a queue uses beyond its nominal quota.", _QUEUE)
QUEUE_LENT = Gauge("tutti_queue_lent", "What others use of a queue's quota.", _QUEUE)
QUEUE_LIMIT = Gauge("tutti_queue_limit", "The most that a queue may use while all others are idle.", _QUEUE)
COHORT_NOMINAL = Gauge("tutti_cohort_nominal", "A cohort's own quota and what its children lend to it.", _COHORT)
COHORT_USAGE = Gauge(
    "tutti_cohort_usage", "What is charged to a cohort, beyond what its queues keep to themselves.", _COHORT
)
COHORT_BORROWED = Gauge("tutti_cohort_borrowed", "What a cohort uses of its parent's quota.", _COHORT)
COHORT_LENT = Gauge("tutti_cohort_lent", "What its parent's other children use of a cohort's quota.", _COHORT)
QUEUE_WAITING = Gauge("tutti_queue_waiting_gangs", "Gangs that wait, in a hub also for a member, by queue.", ["queue"])
QUEUE_RUNNING = Gauge(
    "tutti_queue_running_gangs",
    "Gangs that hold quota and are not being stopped; in a hub those that a member has.",
    ["queue"],
)
QUEUE_ACTIVE = Gauge(
    "tutti_queue_active", "1 while a queue admits gangs, 0 while it is stopped or misconfigured.", ["queue"]
)

_named: set[str] = set()


def term_ended() -> None:
    """Show nothing any more of what only a leader knows: the next one shows it, and may do so in another process."""
    for gauge in (RESERVATIONS, LEDGER_BYTES, LEDGER_PAGES):
        gauge.set(0)
    WAITING.clear()


def know_queues(queues: Iterable[str]) -> None:
    """Take the names of all queues there are; what was counted for queues that are gone is dropped."""
    names = set(sorted(queues)[:QUEUES_MAX])
    if names == _named:
        return
    _named.clear()
    _named.update(names)
    for counted in (ADMITTED, EVICTED, WAIT_SECONDS):
        for sample in [sample for metric in counted.collect() for sample in metric.samples]:
            if sample.name.endswith(("_total", "_count")) and sample.labels["queue"] not in {"", OTHERS, *_named}:
                counted.remove(*sample.labels.values())


def queue_label(queue: str | None) -> str:
    """Return the queue's name, or ``OTHERS``; empty for a gang that only the fences of its namespace bind."""
    return OTHERS if queue and queue not in _named else queue or ""


def class_label(priority: int, classes: Collection[tuple[str, int]]) -> str:
    """Return the first of the ``classes`` by name that has this priority, or ``OTHERS``; empty where none has."""
    for name, value in sorted(classes)[:CLASSES_MAX]:
        if value == priority:
            return name
    return OTHERS if any(value == priority for _, value in classes) else ""
