"""Directories of certificates are replaced as a whole."""

import stat
from pathlib import Path

import pytest

from certs.authority import service_names
from certs.rotation import Material, Terms, advance
from certs.store import load_material, save_material, write_directory

NOW = 1_800_000_000.0
TERMS = Terms(names=service_names("tutti-system"))


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    material = advance(Material(), TERMS, NOW)
    save_material(material, tmp_path / "certs", tmp_path / "authority")
    loaded = load_material(tmp_path / "certs", tmp_path / "authority")
    assert loaded.files() == material.files()
    assert loaded.authorities_pem == material.authorities_pem


def test_nothing_there_is_empty_material(tmp_path: Path) -> None:
    assert load_material(tmp_path / "certs", tmp_path / "authority") == Material()


def test_an_authority_without_a_leaf_gets_one(tmp_path: Path) -> None:
    material = advance(Material(), TERMS, NOW)
    write_directory(tmp_path / "authority", {"authorities.pem": material.authorities_pem})
    loaded = load_material(tmp_path / "certs", tmp_path / "authority")
    assert loaded.leaf is None
    assert advance(loaded, TERMS, NOW).leaf is not None


def test_a_reader_that_opened_the_directory_sees_all_old_or_all_new_files(tmp_path: Path) -> None:
    write_directory(tmp_path, {"tls.crt": b"old", "tls.key": b"old"})
    before = (tmp_path / "..data").resolve()
    write_directory(tmp_path, {"tls.crt": b"new", "tls.key": b"new"})
    after = (tmp_path / "..data").resolve()
    assert before != after
    assert {path.name: path.read_bytes() for path in after.iterdir()} == {"tls.crt": b"new", "tls.key": b"new"}
    assert (tmp_path / "tls.crt").read_bytes() == b"new"


def test_what_an_interrupted_write_left_behind_is_swept_up(tmp_path: Path) -> None:
    (tmp_path / "..0").mkdir()
    (tmp_path / "..0" / "tls.crt").write_bytes(b"half")
    (tmp_path / "..data_new").symlink_to("..0")
    write_directory(tmp_path, {"tls.crt": b"whole"})
    assert (tmp_path / "tls.crt").read_bytes() == b"whole"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["..1", "..data", "tls.crt"]


def test_plain_files_of_an_earlier_tool_are_taken_over(tmp_path: Path) -> None:
    (tmp_path / "tls.crt").write_bytes(b"plain")
    write_directory(tmp_path, {"tls.crt": b"linked"})
    assert (tmp_path / "tls.crt").read_bytes() == b"linked"


def test_keys_are_readable_by_their_owner_only(tmp_path: Path) -> None:
    write_directory(tmp_path / "certs", {"tls.key": b"secret"})
    assert stat.S_IMODE((tmp_path / "certs" / "tls.key").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "certs").stat().st_mode) == 0o700


def test_a_key_that_does_not_match_is_an_error_not_a_silent_replacement(tmp_path: Path) -> None:
    one, other = advance(Material(), TERMS, NOW), advance(Material(), TERMS, NOW)
    save_material(one, tmp_path / "certs", tmp_path / "authority")
    write_directory(tmp_path / "certs", one.files() | {"tls.key": other.files()["tls.key"]})
    with pytest.raises(ValueError, match="do not belong together"):
        load_material(tmp_path / "certs", tmp_path / "authority")
