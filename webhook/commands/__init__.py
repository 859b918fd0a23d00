"""Commands that ask or change a cluster: ``tutti explain``, ``queues``, ``ledger``, ``uninstall``, ``fleet lost``."""
