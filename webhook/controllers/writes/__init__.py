"""What is written to the API server after a cycle: its batch, and the effects on jobs and gated pods; starts are
rehearsed.
"""
