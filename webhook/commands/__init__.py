"""Commands that read or change a cluster: ``tutti explain``, ``queues``, ``ledger``, ``uninstall``, ``fleet lost``, and
``kubectl amc``, which asks the members of a fleet.
"""
