"""The configuration file: what is read in Kueue's words, and what is refused with what to do instead."""

import pytest

from webhook.config import Config, Start, engine_settings, parse
from webhook.core.notation.problem import Problem
from webhook.errors import WrongInput


def refused(text: str) -> Problem:
    with pytest.raises(WrongInput) as caught:
        parse(text, "config.yaml")
    (found,) = caught.value.problems
    return found


def test_what_kueue_calls_waiting_for_pods_is_our_start() -> None:
    written = """
        waitForPodsReady:
          timeout: 10m
          recoveryTimeout: 90s
          requeuingStrategy: {timestamp: Creation, backoffLimitCount: 3, backoffBaseSeconds: 5, backoffMaxSeconds: 80}
    """
    ours = """
        start: {timeout_seconds: 600, recovery_seconds: 90, backoff_seconds: 5, backoff_max_seconds: 80, attempts: 3,
                place: Creation}
    """
    assert parse(written, "").starting == parse(ours, "").starting


def test_kueues_defaults_go_with_kueues_words() -> None:
    assert parse("waitForPodsReady: {}", "").starting == Start(timeout_seconds=1800, recovery_seconds=1800)
    assert parse("waitForPodsReady: {timeout: 1m}", "").starting.recovery_seconds == 60
    assert parse("waitForPodsReady: {recoveryTimeout: 0s}", "").starting.recovery_seconds is None
    assert Config().starting == Start()


def test_a_lease_that_ends_before_it_is_renewed_is_refused() -> None:
    for written in ("{lease_seconds: 3}", "{renew_seconds: 7}", "{renew_seconds: 1, retry_seconds: 1}"):
        found = refused(f"lease: {written}")
        assert found.path == "config.yaml#lease"
        assert found.why.startswith("lease_seconds must be more than renew_seconds")
    assert parse("lease: {lease_seconds: 3, renew_seconds: 2}", "").lease.renew_seconds == 2


def test_the_start_is_written_once() -> None:
    found = refused("{start: {timeout_seconds: 5}, waitForPodsReady: {}}")
    assert "write one of them" in found.why


@pytest.mark.parametrize("strategies", ["[LessThanInitialShare, LessThanOrEqualToFinalShare]", "[Sometimes]", "[]", ""])
def test_only_kueues_lists_of_strategies_are_strategies(strategies: str) -> None:
    assert "fairSharing.preemptionStrategies" in refused(f"fairSharing: {{preemptionStrategies: {strategies}}}").path


def test_fair_sharing_is_off_where_it_is_not_written() -> None:
    assert engine_settings(parse("fairSharing:", "")).fair_sharing == ()
    final = "fairSharing: {preemptionStrategies: [LessThanOrEqualToFinalShare]}"
    assert engine_settings(parse(final, "")).fair_sharing == ("LessThanOrEqualToFinalShare",)


@pytest.mark.parametrize(
    ("written", "seconds"),
    [("36h", 129_600), (".5h", 1800), ("+2m", 120), ("1.m30s", 90), ("5s250000us", 5.25), ("0s", 1800), ("45", 45)],
)
def test_a_duration_is_written_as_in_kueues_file(written: str, seconds: float) -> None:
    assert parse(f"waitForPodsReady: {{timeout: {written}}}", "").starting.timeout_seconds == pytest.approx(seconds)


@pytest.mark.parametrize("written", ["-1s", "2d", "1h30", "''", "700000h"])
def test_what_is_no_duration_there_is_refused(written: str) -> None:
    assert refused(f"waitForPodsReady: {{timeout: {written}}}").path.endswith("waitForPodsReady.timeout")


def test_null_is_the_same_as_absent_in_kueues_words() -> None:
    written = "waitForPodsReady: {timeout: null, recoveryTimeout: 10s, requeuingStrategy: null}"
    assert parse(written, "") == parse("waitForPodsReady: {recoveryTimeout: 10s}", "")


def test_a_back_off_may_be_longer_than_a_day() -> None:
    written = "waitForPodsReady: {requeuingStrategy: {backoffBaseSeconds: 90000, backoffMaxSeconds: 604800}}"
    assert (parse(written, "").starting.backoff_seconds, parse(written, "").starting.backoff_max_seconds) == (
        9e4,
        604800,
    )


def test_no_sampling_interval_is_kueues_default() -> None:
    sharing = parse(
        "admissionFairSharing: {usageHalfLifeTime: 1h, usageSamplingInterval: 0s}", ""
    ).admission_fair_sharing
    assert sharing is not None
    assert sharing.usage_sampling_interval == 300


def test_a_factor_may_be_a_number_with_a_fraction() -> None:
    text = "resources: {transformations: [{input: cpu, outputs: {example.com/credits: 2.5}}]}"
    (rule,) = engine_settings(parse(text, "")).transformations
    assert rule.outputs == {"example.com/credits": 2500}


@pytest.mark.parametrize("strategy", ["IgnoreUndeclared", "BlockUndeclared"])
def test_prefixes_are_excluded_only_where_undeclared_resources_block(strategy: str) -> None:
    text = f"resources: {{excludeResourcePrefixes: [example.com/], quotaCheckStrategy: {strategy}}}"
    if strategy == "IgnoreUndeclared":
        assert "does not go with" in refused(text).why
    else:
        assert engine_settings(parse(text, "")).excluded_prefixes == ("example.com/",)


@pytest.mark.parametrize(
    ("text", "path", "fix"),
    [
        ("waitForPodsReady: {blockAdmission: true}", "waitForPodsReady.blockAdmission", "decides beforehand"),
        ("manageJobsWithoutQueueName: true", "manageJobsWithoutQueueName", "tutti.dev/gated=true"),
        ("resources: {deviceClassMappings: []}", "resources.deviceClassMappings", "not charged"),
        ("featureGates: {PriorityBoost: true}", "featureGates", "default gates"),
        ("multiKueue: {gcInterval: 1m}", "multiKueue", "fleet_members"),
    ],
)
def test_a_setting_that_only_kueue_has_is_refused_with_what_to_do(text: str, path: str, fix: str) -> None:
    found = refused(text)
    assert found.path.endswith(path)
    assert found.why == "is a setting of Kueue's that Tutti does not have"
    assert fix in found.fix
