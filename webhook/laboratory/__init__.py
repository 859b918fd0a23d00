"""What stands beside the product and is imported by nothing of it: simulated cluster, dry runs, replays, demo."""
