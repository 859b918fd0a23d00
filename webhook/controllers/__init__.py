"""The reconciler: it decides, writes the ledger, and then writes to jobs. Only the leader writes.

``loop`` is where it all comes together; ``gangs`` says what to do about each gang, ``ledger`` keeps the record,
``reporting`` tells people.
"""
