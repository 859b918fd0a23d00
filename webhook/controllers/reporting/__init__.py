"""What people are told: ``announce`` says what was decided, by ``events`` on jobs (an ``event_queue`` sends
them) and in the log; ``registration_watch`` notices ``registration_faults`` of the webhook. ``status`` writes the
status of policy objects (``status_documents``); ``queue_metrics`` has the metrics by queue.
"""
