"""What people are told: events on jobs, the status of policy objects, and metrics by queue."""
