"""How many there are of something, as people read it."""


def counted(number: int, what: str) -> str:
    """Return ``number`` and ``what`` there is, in the plural where that is meant: ``1 error``, ``2 errors``."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def does(number: int, verb: str, of: str = "") -> str:
    """Return ``number``, ``of`` what, and what so many do: ``1 fits``, ``2 fit``, ``1 more fits``, ``1 is``."""
    one = {"are": "is", "have": "has"}.get(verb, f"{verb}s")
    return f"{number}{of and ' '}{of} {one if number == 1 else verb}"
