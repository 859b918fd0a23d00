"""Who may start before a blocked head without delaying it, and which queues leave room to those below their own."""
