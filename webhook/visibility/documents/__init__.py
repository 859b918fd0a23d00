"""The documents of the read API: a Workload for every gang, a Queue for every queue, kept on a board with versions."""
