"""The ledger: what was admitted (``record``), its form as the data of ConfigMaps (``text``), which of them holds what
(``pages``), how large an entry may be (``bounds``), which claims and bookings fit next to entries (``beside``),
and how an old copy is noticed (``witness``).
"""
