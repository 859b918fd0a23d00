"""What befalls one gang after it is admitted: its next step, stops, pods that do not come, proof that none is left."""
