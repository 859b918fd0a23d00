"""What tests log costs them little."""

import pytest
import structlog


def test_an_exception_is_logged_without_what_its_frames_hold(capsys: pytest.CaptureFixture[str]) -> None:
    """A frame may hold a whole cluster, and to lay that out takes longer than all else that a test does."""
    held = "-".join(("all", "that", "there", "is"))
    try:
        raise KeyError("lost")
    except KeyError:
        structlog.get_logger().exception("failed")
    shown = capsys.readouterr().out
    assert "KeyError: 'lost'" in shown
    assert held not in shown
