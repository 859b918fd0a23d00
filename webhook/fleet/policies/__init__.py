"""What users' objects say about where a job may go. Pure.

``multikueue`` says which members a queue names, ``propagation`` where one job may go and what follows a failure.
"""
