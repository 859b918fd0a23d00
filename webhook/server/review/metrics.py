"""The webhook's counters with their labels bound once: binding per request costs as much as a log line."""

from typing import Final

from prometheus_client import Counter, Gauge, Histogram

REVIEWS: Final = Counter(
    "tutti_reviews_total",
    "Admission reviews answered, by endpoint and outcome: allowed, warned, patched, forwarded (another replica "
    "decided), or the kind of refusal; docs/operating.md has those.",
    ["endpoint", "outcome"],
)
REVIEW_SECONDS: Final = Histogram(
    "tutti_review_duration_seconds",
    "Time from the end of the request body to the answer.",
    ["endpoint"],
    buckets=(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 2),
)
BAD_REQUESTS: Final = Counter("tutti_bad_requests_total", "Requests that were not reviews, by HTTP status.", ["status"])
FORWARDED: Final = Counter("tutti_reviews_forwarded_total", "Pod reviews passed on to the replica that owns them.")
LEDGER_WAITS: Final = Counter("tutti_ledger_waits_total", "Reviews that waited for a newer ledger.")
WAITING: Final = Gauge("tutti_reviews_waiting", "Reviews that wait for the ledger or a peer.")
CERTIFICATE_EXPIRY: Final = Gauge(
    "tutti_certificate_expiry_seconds", "Unix time at which the serving certificate expires."
)
CERTIFICATE_DUE: Final = Gauge(
    "tutti_certificate_due_seconds",
    "Unix time by which the serving certificate should have been renewed: two weeks before its end, or when a sixth of "
    "its lifetime is left, whichever is later.",
)

_outcomes: dict[tuple[str, str], Counter] = {}
_latencies = {
    path: REVIEW_SECONDS.labels(path)
    for path in ("/mutate/jobs", "/mutate/pods", "/validate/jobs", "/validate/pods", "/validate/policy")
}


def count_review(endpoint: str, outcome: str, seconds: float) -> None:
    """Count one answered review. ``outcome`` is one of a fixed set, never text of a user."""
    counter = _outcomes.get((endpoint, outcome))
    if counter is None:
        counter = _outcomes[(endpoint, outcome)] = REVIEWS.labels(endpoint, outcome)
    counter.inc()
    _latencies[endpoint].observe(seconds)


def count_bad_request(status: int) -> None:
    """Count one request that could not be answered by a review."""
    BAD_REQUESTS.labels(str(status)).inc()
