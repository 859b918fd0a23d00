"""What happens to one gang beside the engine: its next step, stops, pods that do not come, proof that none is left.

``next_step`` names it: ``assess`` for jobs, ``gated_pods`` for gangs of plain pods. ``stops`` stops them, ``siblings``
says who stops with them and ``requeues`` what they take along; ``pods_ready`` watches that they become whole and stay
so, ``pod_proof`` that nothing of them is left, ``late_pods`` that nothing may still come. ``silent_hubs`` stops copies
whose hub is silent.
"""
