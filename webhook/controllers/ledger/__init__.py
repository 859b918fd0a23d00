"""The ledger as stored: its keeper, how much more it may take, and its recovery when it is lost.

``keeper`` says what is written, ``stored`` sends it under compare-and-swap; the text is made in ``core/ledger/text``.
"""
