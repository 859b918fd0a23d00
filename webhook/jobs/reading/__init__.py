"""From a job object to a ``JobRecord``: is it gated, which gang it asks for, where it stands, what we wrote on it."""
