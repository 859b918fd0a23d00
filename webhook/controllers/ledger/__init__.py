"""The ledger as stored: its keeper, how much more it may take, and its recovery when it is lost."""
