"""What is not part of the product, and is imported by nothing of it: simulated cluster, dry runs, replays, demo."""
