"""The loop that decides, and what feeds it: ``reconciler`` is the way in.

``dirty_set`` is what changed, ``engine_feed`` tells the engine of it, ``step_actions`` turns a gang's next step into
entries and effects; ``leadership`` goes from term to term; ``namespaces`` keeps the two labels of namespaces.
"""
