"""Reviews of jobs: ``mutate`` suspends and marks them at creation, ``validate`` judges every change.

``gang_checks`` refuses gangs that are not well-formed and warns of those that can never fit, ``changes`` and ``growth``
say what a stored job may become, ``children`` what its controller may create,
``spare_room`` whether our own annotations will still fit; ``ungated`` judges what does not wait for Tutti.
"""
