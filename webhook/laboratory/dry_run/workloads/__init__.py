"""Kueue's Workload objects as gangs: how they are read, what Kueue refuses of them, what is overdue."""
