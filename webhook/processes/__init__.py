"""What runs in a pod: webhook, reconciler and hub, each with its listeners and certificates; ``running`` runs one.

A process imports its own parts alone: a start is half a second of processor, and what is imported stays in memory.
"""
