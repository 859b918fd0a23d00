"""The reconciler: feeds that keep the view current, the keeper of the ledger, the loop that decides and acts."""
