"""The ledger: what was admitted (``record``), its form as the data of ConfigMaps (``text``), which of them holds what
(``pages``), and how large an entry may be (``bounds``).
"""
