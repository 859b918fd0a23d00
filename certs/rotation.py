"""What is due when: a pure function from what is stored and the time to what should be stored.

An authority is replaced in three steps, so that whoever verifies always knows the signer of what is served:

1. the new authority joins the bundle; the leaf stays;
2. after ``overlap_seconds`` in the bundle it signs the next leaf;
3. after ``overlap_seconds`` of that leaf the old authority leaves the bundle.

Each step is derived from the certificates' own dates. Nothing else is remembered, so a rotation that was interrupted
anywhere goes on at the next run. What a machine whose clock was ahead has made nobody accepts yet: the next run on a
machine whose clock is right replaces it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from certs.authority import (
    AUTHORITY_SECONDS,
    DAY_SECONDS,
    LEAF_SECONDS,
    Pair,
    load_pair,
    new_authority,
    new_leaf,
)

_CERTIFICATE_END: Final = b"-----END CERTIFICATE-----"
_KEY_END: Final = b"-----END PRIVATE KEY-----"


@dataclass(frozen=True, slots=True)
class Terms:
    """How long things last and what the leaf is for."""

    names: tuple[str, ...]
    leaf_seconds: float = LEAF_SECONDS
    leaf_renew_seconds: float = 30 * DAY_SECONDS
    """A leaf with less left than this is replaced."""
    authority_seconds: float = AUTHORITY_SECONDS
    authority_renew_seconds: float = 365 * DAY_SECONDS
    overlap_seconds: float = DAY_SECONDS
    """How long everybody has to learn of a new bundle, or to load a new leaf."""

    def leaf_is_old(self, leaf: Pair, now_seconds: float) -> bool:
        """Return whether the leaf should be replaced for its age; at the latest in the last third of its life."""
        return leaf.ends_seconds - now_seconds < min(self.leaf_renew_seconds, self.leaf_seconds / 3)

    def authority_is_old(self, authority: Pair, now_seconds: float) -> bool:
        """Return whether the authority should be replaced for its age; at the latest in the last third of its life."""
        return authority.ends_seconds - now_seconds < min(self.authority_renew_seconds, self.authority_seconds / 3)


@dataclass(frozen=True, slots=True)
class Material:
    """All that is kept: authorities, newest first, and the leaf."""

    authorities: tuple[Pair, ...] = ()
    leaf: Pair | None = None

    @property
    def bundle_pem(self) -> bytes:
        """What verifiers trust: every authority that is still in use."""
        return b"".join(authority.certificate_pem for authority in self.authorities)

    @property
    def authorities_pem(self) -> bytes:
        """The authorities with their keys, for ``load_authorities``."""
        return b"".join(authority.certificate_pem + authority.key_pem for authority in self.authorities)

    def files(self) -> dict[str, bytes]:
        """Return the files that a server mounts. There must be a leaf."""
        assert self.leaf is not None, "advance() has not run"
        return {"ca.crt": self.bundle_pem, "tls.crt": self.leaf.certificate_pem, "tls.key": self.leaf.key_pem}


def load_authorities(pem: bytes) -> tuple[Pair, ...]:
    """Return the authorities of ``Material.authorities_pem``. Raises ValueError when the text is not that."""
    pairs = []
    for block in pem.split(_KEY_END)[:-1]:
        certificate, _, key = block.partition(_CERTIFICATE_END)
        pairs.append(load_pair(certificate + _CERTIFICATE_END + b"\n", key.strip() + b"\n" + _KEY_END + b"\n"))
    return tuple(pairs)


def with_new_authority(material: Material, terms: Terms, now_seconds: float) -> Material:
    """Return the material with a new authority in its bundle (step 1)."""
    authority = new_authority(now_seconds, terms.authority_seconds)
    return replace(material, authorities=(authority, *material.authorities))


def advance(material: Material, terms: Terms, now_seconds: float) -> Material:
    """Return the material with everything done that is due at ``now_seconds``; the same object when nothing is."""
    material = _advance_authorities(material, terms, now_seconds)
    signer = _signer(material.authorities, terms, now_seconds)
    if why_leaf_is_due(material.leaf, signer, terms, now_seconds) is not None:
        leaf = new_leaf(signer, terms.names, now_seconds, terms.leaf_seconds)
        material = replace(material, leaf=leaf)
    return _drop_old_authorities(material, terms, now_seconds)


def why_leaf_is_due(leaf: Pair | None, signer: Pair, terms: Terms, now_seconds: float) -> str | None:
    """Return why the leaf must be replaced, or None while it is good."""
    if leaf is None:
        return "there is none"
    if leaf.begins_seconds > now_seconds:
        return "it was made by a clock that was ahead: nobody accepts it yet"
    if terms.leaf_is_old(leaf, now_seconds):
        return "it ends soon"
    if leaf.names != terms.names:
        return "its names differ from those asked for"
    if not leaf.signed_by(signer):
        return "its authority is being replaced"
    return None


def _advance_authorities(material: Material, terms: Terms, now_seconds: float) -> Material:
    living = tuple(each for each in material.authorities if each.begins_seconds <= now_seconds < each.ends_seconds)
    if living != material.authorities:
        material = replace(material, authorities=living)
    if not living or terms.authority_is_old(living[0], now_seconds):
        material = with_new_authority(material, terms, now_seconds)
    return material


def _signer(authorities: Sequence[Pair], terms: Terms, now_seconds: float) -> Pair:
    """Return the newest authority that everybody knows by now; at the very beginning there is only one."""
    known = (authority for authority in authorities if now_seconds - authority.issued_seconds >= terms.overlap_seconds)
    return next(known, authorities[-1])


def _drop_old_authorities(material: Material, terms: Terms, now_seconds: float) -> Material:
    newest, leaf = material.authorities[0], material.leaf
    assert leaf is not None, "a leaf was issued above"
    settled = leaf.signed_by(newest) and now_seconds - leaf.issued_seconds >= terms.overlap_seconds
    return replace(material, authorities=(newest,)) if settled and len(material.authorities) > 1 else material
