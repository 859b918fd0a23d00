"""What all reviews share: answers, settings, the table of resources, and the facts read from a job or a pod."""
