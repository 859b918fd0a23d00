"""What people are told: ``announce`` says what was decided, by ``events`` on jobs and in the log; ``status`` writes the
status of policy objects (``status_documents``); ``queue_metrics`` has the metrics by queue.
"""
