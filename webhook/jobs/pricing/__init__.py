"""What one pod costs: ``pod_requests`` prices it as the API server does, ``limit_ranges`` by what LimitRanges add or
forbid, ``resizing`` while it is resized, ``injections`` with the containers that others add, ``host_ports`` its ports;
``context`` is what that takes from the rest of the cluster.
"""
