"""The loop that decides, what feeds it, and what it writes: ``reconciler`` is the way in."""
