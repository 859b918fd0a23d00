"""The permit to start a copy: what the hub writes on it, and what the member's Tutti checks before a start (P1)."""


def permit_text(offer: str, copy_uid: str) -> str:
    """Return the permit for one copy made for ``offer``: useless on any other object, however it came there."""
    return f"{offer} {copy_uid}"


def permits(permit: str, offer: str, copy_uid: str) -> bool:
    """Return whether ``permit``, as stored on a copy of this uid made for ``offer``, lets it start."""
    return bool(offer) and permit == permit_text(offer, copy_uid)


def revoked_text(version: str) -> str:
    """Return what is written in place of a permit on a copy that was read in this version.

    It permits nothing, and is never what stands there already: so the copy gets another version, and a permit that is
    on its way, bound to an earlier one, comes to nothing.
    """
    return f"none before version {version}"
