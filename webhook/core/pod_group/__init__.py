"""Jobs that share one PodGroup: one gang to the engine, one reservation each to everybody else.

``ensemble_engine`` is the engine as the rest of Tutti uses it, ``group`` who of a PodGroup waits and who holds what,
``ensemble`` several jobs composed to one gang, and split again.
"""
