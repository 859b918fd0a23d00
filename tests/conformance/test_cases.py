"""Every case below this folder, run through ``tutti try``: one behaviour a folder, one sentence a file.

docs/try.md says how a case is written. Objects in the ``base.yaml`` of a folder, and of those above it, precede the
case's own input.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml
from typer.testing import CliRunner

from webhook.cli import app
from webhook.laboratory.dry_run.files.documents import documents_in

CASES = Path(__file__).parent
FILES = sorted(path for path in CASES.rglob("*.yaml") if path.name != "base.yaml")
NOON = "2026-01-01T12:00:00Z"
KEYS = {"description", "args", "config", "input", "expect"}
CYCLE_KEYS = {"admitted", "preempted", "waiting", "grown", "stopped"}


def load(path: Path) -> Any:
    """The only document of a file; times stay text."""
    (document,) = documents_in(path.read_text()).found
    return document


def base(path: Path) -> Iterator[Any]:
    """The objects that all cases of a folder share."""
    for folder in reversed(path.relative_to(CASES).parents):
        file = CASES / folder / "base.yaml"
        if file.exists():
            yield from load(file)


def decide(path: Path, case: dict[str, Any], tmp_path: Path) -> tuple[int, dict[str, Any]]:
    """Exit status and report of a case."""
    objects = [*base(path), *case.get("input", ())]
    file, config = tmp_path / "input.yaml", tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump_all(objects))
    args = ["try", str(file), "-o", "json", *map(str, case.get("args", ()))]
    if "--now" not in args:
        args += ["--now", NOON]
    if "config" in case:
        config.write_text(yaml.safe_dump(case["config"]))
        args += ["--config", str(config)]
    done = CliRunner().invoke(app, args, catch_exceptions=False)
    return done.exit_code, orjson.loads(done.stdout)


def partly(wanted: Any, found: Any) -> Any:
    """``found``, reduced to what ``wanted`` names."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        return {key: partly(value, found.get(key)) for key, value in wanted.items()}
    if isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        return [partly(one, other) for one, other in zip(wanted, found, strict=True)]
    return found


def check_cycle(wanted: dict[str, Any], found: dict[str, Any], where: str) -> None:
    assert wanted.keys() <= CYCLE_KEYS, f"{where}: unknown keys"
    for key in ("admitted", "preempted"):
        expected, got = wanted.get(key, []), found[key]
        if key == "preempted":
            expected, got = (sorted(each, key=lambda entry: entry["gang"]) for each in (expected, got))
        assert partly(expected, got) == expected, f"{where}, {key}"
    if "waiting" in wanted:
        assert partly(wanted["waiting"], found["waiting"]) == wanted["waiting"], f"{where}, waiting"
    for key in ("grown", "stopped"):
        assert partly(wanted.get(key, []), found.get(key, [])) == wanted.get(key, []), f"{where}, {key}"


def check_diagnostics(wanted: list[dict[str, str]], found: list[dict[str, str]]) -> None:
    """Every expected diagnostic is there, each text as a part of what was found, and there are no others."""
    left = list(found)
    for each in wanted:
        match = next((one for one in left if all(str(text) in str(one.get(key)) for key, text in each.items())), None)
        assert match is not None, f"no diagnostic {each} among {left}"
        left.remove(match)
    assert left == [], "further diagnostics"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(CASES).with_suffix("")))
def test_case(path: Path, tmp_path: Path) -> None:
    case = load(path)
    assert case.keys() <= KEYS
    assert case["description"]
    status, found = decide(path, case, tmp_path)
    expect = case["expect"]
    check_diagnostics(expect.get("diagnostics", []), found["diagnostics"])
    assert status == (2 if found["diagnostics"] else 0)
    if "cycles" in expect:
        assert len(found["cycles"]) == len(expect["cycles"]), found["cycles"]
        for number, (wanted, got) in enumerate(zip(expect["cycles"], found["cycles"], strict=True), start=1):
            check_cycle(wanted, got, f"cycle {number}")
    if "skipped" in expect:
        assert partly(expect["skipped"], found.get("skipped", [])) == expect["skipped"]


def test_the_names_of_all_cases_differ() -> None:
    names = [path.relative_to(CASES).as_posix() for path in FILES]
    assert len({name.lower() for name in names}) == len(names)
