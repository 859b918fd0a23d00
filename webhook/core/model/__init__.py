"""What asks (``gang``, ``pods``), and what is allowed: queues, cohorts, flavors, limits (``policy``, ``settings``).

No behaviour to speak of. What thousands of gangs have alike is kept once (``interning``).
"""
