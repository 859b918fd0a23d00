"""Reviews of jobs: ``mutate`` suspends and marks them at creation, ``validate`` judges every change.

``gang_checks`` says whether a gang is well-formed and could ever fit, ``changes`` and ``growth`` what a stored job may
become, ``children`` what its controller may create, ``spare_room`` whether our own annotations will still fit;
``ungated`` judges what does not wait for Tutti.
"""
