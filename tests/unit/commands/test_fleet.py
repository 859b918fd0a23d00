"""What ``tutti fleet`` says."""

from webhook.commands.fleet import outcome


def test_what_is_only_tried_is_not_said_to_have_happened() -> None:
    assert outcome(1, "left", dry_run=True) == "1 gang is in left; it would get no more"
    assert outcome(2, "left", dry_run=True) == "2 gangs are in left; it would get no more"
    assert outcome(1, "left", dry_run=False) == "1 gang was in left; it gets no more"
    assert outcome(0, "left", dry_run=False) == "0 gangs were in left; it gets no more"
