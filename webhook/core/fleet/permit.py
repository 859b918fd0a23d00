"""The leave to start a copy: what the hub writes on it, and what the member's Tutti asks before it starts it (P1)."""


def permit_text(offer: str, copy_uid: str) -> str:
    """Return the permit for one copy made for ``offer``: useless on any other object, however it came there."""
    return f"{offer} {copy_uid}"


def permits(permit: str, offer: str, copy_uid: str) -> bool:
    """Return whether ``permit``, as stored on a copy of this uid made for ``offer``, lets it start."""
    return bool(offer) and permit == permit_text(offer, copy_uid)
