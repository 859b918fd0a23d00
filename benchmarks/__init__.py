"""Timings live here, never in tests. Each prints a ratio against a peer or a limit measured in the same run."""
