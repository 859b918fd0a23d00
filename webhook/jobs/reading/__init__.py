"""From a job object to a ``JobRecord`` (``record``): ``job`` is the way in.

``gating`` says whether it waits for us, ``gang`` and ``pod_set`` what it asks, ``status`` where it stands,
``annotations`` what we wrote on it, ``missing_class`` which of its classes does not exist,
``network_topology`` Volcano's word on racks, ``made_for`` whose child it is; ``ours`` is the table of all
our names on objects.
"""
