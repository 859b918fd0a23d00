"""Where a job object keeps its pod sets: ``find`` is the way in; ``sites`` goes by the paths of its kind, ``readers``
has the kinds whose pods cannot be found by paths (``spark``, ``train_job``, ``app_wrapper``).
"""
