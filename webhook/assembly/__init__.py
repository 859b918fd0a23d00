"""The composition root: puts a process together from its parts, over any ``Api``.

Nothing here opens a socket by itself, so that the demo and the simulation run the very objects that production runs;
``processes`` has ``read_api`` serve, and adds the webhook's listeners, certificates, signals and the watchdog.
"""
