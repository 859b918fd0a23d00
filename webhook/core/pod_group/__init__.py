"""Jobs that share one PodGroup: one gang to the engine, one reservation each to everybody else."""
