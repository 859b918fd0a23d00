"""What a cycle writes to the API server: ``batch`` gathers it, ``effects`` sends it once the ledger has it;
``rehearsal`` checks that the pods of a start would be let in.
"""
