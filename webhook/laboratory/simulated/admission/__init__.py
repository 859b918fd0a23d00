"""Admission in the simulated API server: webhooks, LimitRange and priority of pods, ResourceQuota."""
