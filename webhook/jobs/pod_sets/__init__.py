"""Where a job object keeps its pod sets: by the paths of its kind, or by a built-in reader."""
