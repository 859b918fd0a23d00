"""One gang at a time: from which flavors it could start, which gangs it would stop, and at which share.

``request`` says what it asks, ``node_match`` and ``flavors`` where that could come from, ``preemption`` and
``fair_sharing`` at whose cost, and ``decision`` puts the four together.
"""
