"""The configuration file: what is read in Kueue's words, and what is refused with what to do instead."""

import pytest

from webhook.config import Config, Start, parse
from webhook.core.policy import Diagnostic
from webhook.errors import PolicyError


def refused(text: str) -> Diagnostic:
    with pytest.raises(PolicyError) as caught:
        parse(text, "config.yaml")
    (found,) = caught.value.diagnostics
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


def test_the_start_is_written_once() -> None:
    found = refused("{start: {timeout_seconds: 5}, waitForPodsReady: {}}")
    assert "write one of them" in found.message


@pytest.mark.parametrize("strategies", ["[LessThanInitialShare, LessThanOrEqualToFinalShare]", "[Sometimes]"])
def test_only_kueues_lists_of_strategies_are_strategies(strategies: str) -> None:
    assert "fairSharing.preemptionStrategies" in refused(f"fairSharing: {{preemptionStrategies: {strategies}}}").path


@pytest.mark.parametrize(
    ("text", "path", "fix"),
    [
        ("waitForPodsReady: {blockAdmission: true}", "waitForPodsReady.blockAdmission", "is decided before"),
        ("manageJobsWithoutQueueName: true", "manageJobsWithoutQueueName", "tutti.dev/gated=true"),
        ("resources: {deviceClassMappings: []}", "resources.deviceClassMappings", "not charged"),
        ("featureGates: {PriorityBoost: true}", "featureGates", "default gates"),
    ],
)
def test_a_setting_that_only_kueue_has_is_refused_with_what_to_do(text: str, path: str, fix: str) -> None:
    found = refused(text)
    assert found.path.endswith(path)
    assert found.message == "is a setting of Kueue's that Tutti does not have"
    assert fix in found.fix
