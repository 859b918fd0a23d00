"""Every metric, with its help text. Labels are few and bounded: never a namespace, a gang or anything users write."""

from collections.abc import Container

from prometheus_client import Counter, Gauge, Histogram

ADMITTED = Counter("tutti_admitted_gangs_total", "Gangs admitted.", ["queue"])
EVICTED = Counter("tutti_evicted_gangs_total", "Gangs stopped after admission.", ["queue", "reason"])
WAITING = Gauge("tutti_waiting_gangs", "Gangs that wait, by typed reason.", ["reason"])
RESERVATIONS = Gauge("tutti_reservations", "Entries in the ledger.")
LEDGER_BYTES = Gauge("tutti_ledger_bytes", "Size of the ledger; a ConfigMap holds 1 MiB.")
LEDGER_WRITES = Counter("tutti_ledger_writes_total", "Writes to the ledger.", ["outcome"])
LEDGER_SENT = Counter("tutti_ledger_sent_bytes_total", "Bytes of all writes to the ledger, as they were sent.")
LEDGER_REBUILDS = Counter("tutti_ledger_rebuilds_total", "Rebuilds of a missing or corrupt ledger.")
LEADING = Gauge("tutti_leading", "1 while this replica leads.")
STEPPED_DOWN = Counter("tutti_stepped_down_total", "Ends of a leadership in a process that goes on.", ["why"])
EPOCH = Gauge("tutti_ledger_epoch", "Number of the current leadership.")
CYCLE_SECONDS = Histogram(
    "tutti_cycle_duration_seconds",
    "Time of one decision cycle without its I/O.",
    buckets=(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5),
)
EFFECTS = Counter("tutti_effects_total", "Writes to jobs, by kind of effect and outcome.", ["effect", "outcome"])
WAIT_SECONDS = Histogram(
    "tutti_admission_wait_seconds",
    "Time from a gang's place in the queue to its admission.",
    buckets=(0.1, 0.5, 1, 5, 30, 60, 300, 900, 3600, 14_400, 86_400),
)
BROKEN_JOBS = Counter("tutti_broken_jobs_total", "Failures of ours on one job; the log has each.")
UNREADABLE_OBJECTS = Counter(
    "tutti_unreadable_objects_total", "Objects whose stored state could not be read, by what is watched.", ["kind"]
)
UNREAD_KINDS = Gauge("tutti_unread_kinds", "1 for what the API server refuses to list, by what is watched.", ["kind"])
EVENTS_DROPPED = Counter("tutti_events_dropped_total", "Kubernetes events not written because too many waited.")


def forget_queues(known: Container[str]) -> None:
    """Drop what is counted by queue of queues that are not ``known`` any more."""
    for counter, names in ((ADMITTED, ("queue",)), (EVICTED, ("queue", "reason"))):
        for sample in [sample for metric in counter.collect() for sample in metric.samples]:
            queue = sample.labels["queue"]
            if queue and queue not in known and sample.name.endswith("_total"):
                counter.remove(*(sample.labels[name] for name in names))
