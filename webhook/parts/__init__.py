"""The composition root: puts a process together from its parts, over any ``Api``.

Nothing here touches a socket, so that the demo and the simulation run the very objects that production runs;
``processes`` adds listeners, certificates, signals and the watchdog.
"""
