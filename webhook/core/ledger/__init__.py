"""The ledger: what was admitted (``record``), its form as the data of ConfigMaps (``text``), which of them holds what
(``pages``), how large an entry may be (``bounds``), and what of claims and bookings fits beside entries (``beside``).
"""
