"""The reconciler: it decides, writes the ledger, and then writes to jobs. Only the leader writes.

``loop`` is where it all comes together; ``gang_record`` is what a term knows of each gang, ``gangs`` says what to do
about each, ``ledger`` keeps the record, ``writes`` sends what follows from it, ``reporting`` tells people.
"""
