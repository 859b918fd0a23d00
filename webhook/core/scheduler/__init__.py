"""The engine: a deterministic state machine. ``engine`` is the way in; ``cycle`` is one decision round.

``state`` is all it remembers, ``queue_order`` which queue is asked first, ``usage_order`` who goes first by decayed
usage, ``borrowing_guard`` which queues leave room to starved ones, ``claims`` room being made, ``booked_nodes`` nodes
kept until they are free, ``growth`` gangs that grow to full size, ``plan`` the outcome, ``explain`` and
``queueing_hints`` why a gang waits and what may help.
"""
