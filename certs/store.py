"""Directories of certificates, replaced as a whole: a reader never sees a certificate beside another one's key.

The layout is the kubelet's for mounted Secrets, so that programs which follow one follow the other: files are links
into ``..data``, itself a link to a directory that is written first and switched to by one rename.
"""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from certs.authority import load_pair
from certs.rotation import Material, load_authorities

AUTHORITIES_FILE: Final = "authorities.pem"
_DATA: Final = "..data"


def write_directory(directory: Path, files: Mapping[str, bytes]) -> None:
    """Make ``files`` the content of ``directory``, all at once, readable by the owner only.

    Raises OSError; then the previous content is still in place.
    """
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    fresh = _fresh_directory(directory)
    for name, content in files.items():
        _write_file(fresh / name, content)
    switch = directory / "..data_new"
    switch.unlink(missing_ok=True)
    switch.symlink_to(fresh.name)
    switch.replace(directory / _DATA)
    for name in files:
        _link(directory / name, Path(_DATA) / name)
    for left_over in directory.glob("..[0-9]*"):
        if left_over != fresh:
            shutil.rmtree(left_over, ignore_errors=True)


def load_material(directory: Path, authority_directory: Path) -> Material:
    """Return what both directories hold; empty when they do not exist. Raises ValueError when it is unreadable."""
    try:
        authorities = load_authorities((authority_directory / AUTHORITIES_FILE).read_bytes())
    except FileNotFoundError:
        return Material()
    try:
        leaf = load_pair((directory / "tls.crt").read_bytes(), (directory / "tls.key").read_bytes())
    except FileNotFoundError:
        return Material(authorities)
    return Material(authorities, leaf)


def save_material(material: Material, directory: Path, authority_directory: Path) -> None:
    """Write both directories, the authorities first: a leaf whose signer is lost could never be renewed in peace."""
    write_directory(authority_directory, {AUTHORITIES_FILE: material.authorities_pem})
    write_directory(directory, material.files())


def _fresh_directory(directory: Path) -> Path:
    number = 0
    while True:
        candidate = directory / f"..{number}"
        try:
            candidate.mkdir(mode=0o700)
        except FileExistsError:
            number += 1
        else:
            return candidate


def _write_file(path: Path, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _link(path: Path, target: Path) -> None:
    if path.is_symlink() and path.readlink() == target:
        return
    path.unlink(missing_ok=True)
    path.symlink_to(target)
