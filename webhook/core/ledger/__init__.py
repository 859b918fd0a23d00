"""The ledger: what was admitted (``record``), and its form as the data of a ConfigMap (``text``)."""
