"""Answers for people at a terminal: why a job waits, what each queue holds, what the ledger says, is Tutti well.

Everything is read through the Kubernetes API, with the rights of the user: the read API for gangs and queues, the
ledger's ConfigMap for the ledger. Nothing here needs to run where Tutti runs. ``command`` has what ``tutti`` calls,
``reading`` finds the documents, ``gang``, ``queue``, ``queues`` and ``ledger`` print them; ``health`` looks at all of
it once.
"""
