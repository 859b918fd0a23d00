"""What a job refers to comes with it into its member, where its propagation policy asks for that.

In reading order: ``dependency`` (one such object, pure), ``references`` (which of them a job names, pure), ``holding``
(has a member hold one), ``bringing`` (all of one job).
"""
