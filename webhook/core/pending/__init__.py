"""Where gangs wait: their queues, who is not eligible, and an index of what could wake them."""
