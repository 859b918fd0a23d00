"""Answers for people at a terminal: why a job waits, what each queue holds, what the ledger says, is Tutti well.

Everything is read through the Kubernetes API, with the rights of the user: the read API for gangs and queues, the
ledger's ConfigMap for the ledger. Nothing here needs to run where Tutti runs. ``reading`` finds the documents; each
command of ``tutti`` is the first function of ``gang``, ``queues``, ``ledger`` or ``health``, so that it imports no more
than it shows.
"""
