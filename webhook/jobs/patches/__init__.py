"""The JSON Patches that Tutti writes: on jobs, on their pod templates, and on pods behind our scheduling gate."""
