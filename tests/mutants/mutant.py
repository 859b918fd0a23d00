"""What a mutant is: the product with one rule removed in one place."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
UNIT: Final = "tests/unit"


@dataclass(frozen=True, slots=True)
class Mutant:
    """One rule removed in one place."""

    rule: str
    """Of the ledger by number, of the fleet's protocol as P1 to P7; C: of children; F: fail-over; N: that nodes hold
    what starts; R: that a request takes nothing of others; U: that what is unread is given nothing."""
    without: str
    """What the product no longer does."""
    path: str
    passage: str
    """Text that is in the file exactly once."""
    instead: str
    tests: str
    """What pytest runs: one of these tests must fail."""
