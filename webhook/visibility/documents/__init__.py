"""The documents of the read API: a Workload for every gang, a Queue for every queue, kept in a watch cache."""
