"""What people are told: events on jobs, and the status of policy objects."""
