"""Reviews of pods: gang pods within their reservation, loose pods within what reservations leave of the fences."""
