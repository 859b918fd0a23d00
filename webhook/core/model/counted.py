"""How many there are of something, as people read it."""


def counted(number: int, what: str) -> str:
    """Return ``number`` and ``what`` there is, in the plural where that is meant: ``1 error``, ``2 errors``."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
