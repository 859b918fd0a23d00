"""A hub and three members under faults, each link with its own.

In reading order: ``links`` (what a link may do to what is sent over it), ``pace`` (how often a hub looks at one gang),
``rules`` (what must hold after each stored write), ``needs`` (what some jobs refer to), ``brought`` (what must hold of
that), ``spark`` (jobs that are placed by an annotation, and who runs them), ``story`` (jobs, faults, hubs that die, and
what must hold in the end), ``weathers`` (one fault that lasts, and within what time all is well again).
"""
