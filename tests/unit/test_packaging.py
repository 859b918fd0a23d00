"""What is shipped runs without the checkout: image and wheel lack nothing that they import."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from fnmatch import fnmatch
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from manifests import bill_of_materials

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
IMPORT_EVERYTHING = """
import importlib, pkgutil, sys
import certs, webhook

for package in (certs, webhook):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if module.name != "webhook.__main__":
            importlib.import_module(module.name)
from webhook.controllers.reporting import registration_faults
from webhook.laboratory.demo import files
assert registration_faults.shipped() and all(files.teams(name) for name in ("quota", "vision-jobs", "speech-jobs"))
print(*sorted(f"{name} {getattr(module, '__file__', '') or ''}" for name, module in sys.modules.items()), sep="\\n")
"""


def copied_from_the_checkout() -> list[tuple[str, str]]:
    """Return source and destination of what the Dockerfile copies, but for what comes from another stage."""
    found = re.findall(r"^COPY (?!--from)(\S+) (\S+)$", DOCKERFILE, re.MULTILINE)
    assert len(found) == len(re.findall(r"^COPY (?!--from)", DOCKERFILE, re.MULTILINE)), "a COPY that is read nowhere"
    return found


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the image has in /app."""
    app = tmp_path_factory.mktemp("image")
    for source, destination in copied_from_the_checkout():
        if destination.startswith("/app/"):
            target = app / destination.removeprefix("/app/")
            if source.endswith("/"):
                shutil.copytree(ROOT / source, target, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                target.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / source, target)
    return app


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the wheel unpacks into site-packages."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)], cwd=ROOT, check=True)
    (built,) = folder.glob("tutti-*.whl")
    with zipfile.ZipFile(built) as archive:
        archive.extractall(folder / "installed")
    return folder / "installed"


def locked(name: str) -> set[str]:
    """Return the distributions of a lock file."""
    return set(re.findall(r"^([a-z0-9._-]+)==", (ROOT / name).read_text(), re.MULTILINE))


def run(folder: Path, *arguments: str) -> str:
    """Return what Python prints in a folder where our packages are found nowhere else."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={"PYTHONPATH": str(folder), "COLUMNS": "120"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module", params=["image", "wheel"])
def imported(request: pytest.FixtureRequest) -> tuple[Path, dict[str, str]]:
    """Where the shipped files are, and the file of every module that importing all of them loads."""
    folder: Path = request.getfixturevalue(request.param)
    return folder, dict(line.partition(" ")[::2] for line in run(folder, "-c", IMPORT_EVERYTHING).splitlines())


def test_what_is_shipped_imports_nothing_of_ours_that_is_not(imported: tuple[Path, dict[str, str]]) -> None:
    folder, files = imported
    ours = {name: file for name, file in files.items() if name.partition(".")[0] in {"webhook", "certs"}}
    assert len(ours) > 100
    assert not {name for name, file in ours.items() if not Path(file).is_relative_to(folder)}
    of_the_checkout = {path.name for path in ROOT.iterdir() if path.is_dir()} - {"webhook", "certs"}
    assert not {name.partition(".")[0] for name in files} & of_the_checkout


def test_what_is_shipped_imports_no_library_that_is_locked_for_development_alone(
    imported: tuple[Path, dict[str, str]],
) -> None:
    development = locked("requirements-dev.lock") - locked("requirements.lock")
    assert "pytest" in development
    loaded = {name.partition(".")[0] for name in imported[1]}
    providers = {top: {name.lower() for name in names} for top, names in packages_distributions().items()}
    assert not {top for top in loaded if providers.get(top, set()) & development}


@pytest.mark.parametrize("program", ["webhook", "certs"])
def test_the_programs_of_the_image_start_there(program: str, image: Path) -> None:
    assert "Usage" in run(image, "-m", program, "--help")


def test_the_image_is_built_from_files_that_exist_and_are_sent_to_the_builder() -> None:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    sent = [line.removeprefix("!") for line in lines if line.startswith("!")]
    assert "*" in lines
    for source, _ in copied_from_the_checkout():
        path = source.rstrip("/")
        assert (ROOT / path).exists(), source
        assert any(path == entry or fnmatch(path, f"{entry}/*") for entry in sent), f"{source} is held back"


def built_again(folder: Path, at: str) -> Path:
    """Return a wheel of a fresh copy of the checkout, whose files are of now."""
    for name in ("webhook", "certs", "examples", "manifests"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"), copy_function=copied)
    for name in ("pyproject.toml", "README.md", "LICENSE", ".gitignore"):
        copied(ROOT / name, folder / name)
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder / "dist")],
        cwd=folder,
        env=os.environ | {"SOURCE_DATE_EPOCH": at},
        check=True,
    )
    (wheel,) = (folder / "dist").glob("tutti-*.whl")
    return wheel


def copied(source: str | Path, target: str | Path) -> None:
    """Copy a file without its times."""
    shutil.copyfile(source, target)


def test_two_builds_of_one_commit_make_the_same_wheel(tmp_path: Path) -> None:
    first, second = (built_again(tmp_path / name, "1750000000") for name in ("one", "two"))
    assert hashlib.sha256(first.read_bytes()).digest() == hashlib.sha256(second.read_bytes()).digest()


def test_two_builds_of_one_commit_make_the_same_byte_code_for_the_image(tmp_path: Path) -> None:
    assert re.search(r"^ENV .*SOURCE_DATE_EPOCH=.* PYTHONHASHSEED=0$", DOCKERFILE, re.MULTILINE)
    found = []
    for name in ("one", "two"):
        # In the image the path is the same each time, and a file's time is not.
        shutil.rmtree(tmp_path / "app", ignore_errors=True)
        shutil.copytree(ROOT / "webhook" / "core", tmp_path / "app", ignore=shutil.ignore_patterns("__pycache__"))
        for file in (tmp_path / "app").rglob("*.py"):
            os.utime(file, (0, 1 if name == "one" else 2))
        environment = os.environ | {"SOURCE_DATE_EPOCH": "0", "PYTHONHASHSEED": "0"}
        subprocess.run([sys.executable, "-m", "compileall", "-q", "app"], cwd=tmp_path, env=environment, check=True)
        found.append({path.relative_to(tmp_path): path.read_bytes() for path in (tmp_path / "app").rglob("*.pyc")})
    assert len(found[0]) > 30
    assert found[0] == found[1]


def test_the_bill_of_materials_names_every_locked_package_with_its_hashes() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    bill = json.loads(bill_of_materials.document(lock))
    assert {part["name"] for part in bill["components"]} == locked("requirements.lock")
    hashes = {found["content"] for part in bill["components"] for found in part["hashes"]}
    assert hashes == set(re.findall(r"sha256:([0-9a-f]{64})", lock))
    assert all(part["purl"] == f"pkg:pypi/{part['name']}@{part['version']}" for part in bill["components"])
    assert bill_of_materials.document(lock) == bill_of_materials.document(lock)


def test_the_command_is_a_plugin_of_kubectl_too() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts["kubectl-tutti"] == scripts["tutti"]
    assert scripts["kubectl-amc"] == "webhook.cli:amc"
