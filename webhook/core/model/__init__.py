"""What asks (``gang``, ``pods``), and what is allowed: queues, cohorts, flavors, limits (``policy``, ``settings``).

Almost no behaviour. What thousands of gangs have in common is kept once (``interning``).
"""
