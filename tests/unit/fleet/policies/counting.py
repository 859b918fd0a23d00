"""Counts how often labels are compared with a selector."""

import pytest

from webhook.core.model.policy import LabelSelector


def matches(monkeypatch: pytest.MonkeyPatch) -> list[LabelSelector]:
    """Return a list that gets a selector whenever labels are compared with it."""
    compared: list[LabelSelector] = []
    usual = LabelSelector.matches

    def counted(selector: LabelSelector, labels: dict[str, str]) -> bool:
        compared.append(selector)
        return usual(selector, labels)

    monkeypatch.setattr(LabelSelector, "matches", counted)
    return compared
