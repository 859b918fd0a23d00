"""Tutti: gang admission for Kubernetes. A gang of pods starts whole or not at all.

Reading order: ``core`` (what is decided, pure), ``jobs`` and ``dialects`` (objects to core types), ``kube`` (the API
server), ``cluster`` (what one process knows of a cluster), ``server`` (the webhook), ``controllers`` (the reconciler),
``fleet`` (a hub), ``visibility`` (the read API), ``parts``, ``processes`` and ``cli`` (how they become programs).
"""

__version__ = "0.1.0"
