"""What a program can check of the style in CONTRIBUTING.md, and that the documentation speaks of what is there."""

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from webhook.config import Config
from webhook.jobs.kinds.registry import with_custom
from webhook.untyped.operator_files import Section

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "webhook"
MODULE_LINES_MAX = 500
FUNCTION_LINES_MAX = 70
BANNED_WORDS = {"util", "utils", "helper", "helpers", "common", "manager", "misc"}
PYTHON_ROOTS = ("webhook", "certs", "manifests", "benchmarks", "tests")
NOT_LENGTH_BOUND = {"tests/unit/server/http/test_hostile_inputs.py"}
"""A table of one case after the other is read in pieces anyway."""
MACHINE_PATHS = re.compile(r"(?<![\w.])/(?:home|Users|work|root)/\w+")


def tracked() -> list[Path]:
    """Everything in the repository, also what is about to be added."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    names = listed.stdout.split("\n") if listed.returncode == 0 else []
    found = [ROOT / name for name in names if name]
    return [path for path in found if path.is_file()] or [p for r in PYTHON_ROOTS for p in (ROOT / r).rglob("*.*")]


FILES = tracked()
MODULES = [p for p in FILES if p.suffix == ".py" and p.relative_to(ROOT).parts[0] in PYTHON_ROOTS]
DOCUMENTS = [p for p in FILES if p.suffix == ".md"]
TREES = {path: ast.parse(path.read_text()) for path in MODULES}


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_no_module_is_longer_than_a_reader_holds_in_their_head() -> None:
    lengths = {name(p): len(p.read_text().splitlines()) for p in MODULES if name(p) not in NOT_LENGTH_BOUND}
    assert {n: lines for n, lines in lengths.items() if lines > MODULE_LINES_MAX} == {}


def test_no_function_is_longer_than_a_screen() -> None:
    long = {}
    for path, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or 0) - node.lineno + 1
                if lines > FUNCTION_LINES_MAX:
                    long[f"{name(path)}:{node.lineno} {node.name}"] = lines
    assert long == {}


def test_every_module_says_what_it_is_for() -> None:
    # An empty __init__ of a tests package says enough.
    silent = [name(p) for p, t in TREES.items() if p.read_text().strip() and not ast.get_docstring(t)]
    assert silent == []


def test_no_file_name_says_that_nobody_knew_what_it_is_for() -> None:
    named = [name(p) for p in MODULES if BANNED_WORDS & set(re.split(r"[_.]", p.name))]
    assert named == []


def test_nothing_names_a_path_of_one_machine() -> None:
    found = {}
    for path in FILES:
        if path.suffix in {".py", ".md", ".yaml", ".yml", ".toml", ".sh", ""} and path.name != "test_tidy.py":
            try:
                hits = MACHINE_PATHS.findall(path.read_text())
            except UnicodeDecodeError:
                continue
            if hits:
                found[name(path)] = hits[:3]
    assert found == {}


# -- documentation --------------------------------------------------------------------------------------------------


def prose(path: Path) -> str:
    """A document without its blocks of code."""
    return re.sub(r"^```.*?^```", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)


def anchors(path: Path) -> set[str]:
    """The anchors of a document's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", prose(path), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_no_link_between_documents_is_dead(document: Path) -> None:
    dead = []
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(document)):
        if re.match(r"[a-z]+:", target):
            continue
        place, _, anchor = target.partition("#")
        linked = (document.parent / place).resolve() if place else document
        if not linked.exists() or (anchor and linked.suffix == ".md" and anchor not in anchors(linked)):
            dead.append(target)
    assert dead == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_no_document_names_a_file_that_is_not_there(document: Path) -> None:
    mentioned = re.findall(r"`((?:webhook|certs|manifests|tests|docs|examples|benchmarks)/[\w./-]*)`", prose(document))
    assert [place for place in mentioned if not (ROOT / place).exists()] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_every_module_that_a_document_names_is_there(document: Path) -> None:
    mentioned = set(re.findall(r"`([\w/]+\.py)`", document.read_text()))
    assert [place for place in sorted(mentioned) if not any(f"/{name(p)}".endswith(f"/{place}") for p in MODULES)] == []


def strangers(line: str) -> list[str]:
    """Return the private names and the methods that a line tells, and no module that it names has."""
    spans = re.findall(r"`([^`]+)`", line)
    ends = tuple(f"/{span}" for span in spans if span.endswith(".py"))
    code = "\n".join(path.read_text() for path in MODULES if f"/{name(path)}".endswith(ends))
    told = [span for span in spans if re.fullmatch(r"_[a-z]\w*|[A-Z]\w*\.[a-z_]\w*", span)]
    return [span for span in told if not all(re.search(rf"\b{word}\b", code) for word in span.split("."))]


def test_what_the_architecture_names_of_a_module_is_in_it() -> None:
    lines = (ROOT / "ARCHITECTURE.md").read_text().splitlines()
    assert [told for line in lines for told in strangers(line)] == []


def test_a_name_that_its_module_lost_is_noticed() -> None:
    where = "`core/pending/pending_queue.py` "
    assert strangers(f"{where}(`PendingQueue.head`, `_pod_set_key`)") == []
    assert strangers(f"{where}(`PendingQueue.lost`, `_lost`)") == ["PendingQueue.lost", "_lost"]


def named_modules(text: str) -> Iterator[str]:
    """What a docstring names by a dotted path from the package, as ``core.ledger.record.Ledger``."""
    rooms = "|".join(sorted(path.stem for path in PACKAGE.iterdir() if not path.stem.startswith(("_", "."))))
    yield from re.findall(rf"``((?:{rooms})(?:\.\w+)+)(?:\(.*?\))?``", text)


def is_there(dotted: str) -> bool:
    at, names = PACKAGE, dotted.split(".")
    while names and (at / names[0]).is_dir():
        at /= names.pop(0)
    if not names:
        return True
    module = at / f"{names[0]}.py"
    return module.is_file() and (len(names) == 1 or re.search(rf"\b{names[1]}\b", module.read_text()) is not None)


@pytest.mark.parametrize(("dotted", "there"), [("core.ledger", True), ("core.policy.X", False), ("core.x", False)])
def test_what_a_dotted_path_names_is_looked_up(dotted: str, there: bool) -> None:
    assert is_there(dotted) is there


def test_no_docstring_names_a_module_that_is_not_there() -> None:
    named = {(name(path), each) for path in MODULES for each in named_modules(path.read_text())}
    assert len(named) > 30, "none would be found wrong"
    assert {(where, each) for where, each in named if not is_there(each)} == set()


def keys(model: type[Section], prefix: str = "") -> Iterator[tuple[str, object]]:
    for field, info in model.model_fields.items():
        key = prefix + (info.alias or field)
        if isinstance(info.annotation, type) and issubclass(info.annotation, Section):
            yield from keys(info.annotation, f"{key}.")
        else:
            yield key, info.get_default(call_default_factory=True)


def test_the_configuration_page_has_every_key_with_its_default() -> None:
    page = (ROOT / "docs" / "configuration.md").read_text()
    rows = re.findall(r"^\| `([\w.]+)` \|[^|]*\| `([^`]*)` \|", page, flags=re.MULTILINE)
    written = {key: yaml.safe_load(default) for key, default in rows}
    wanted = {key: plain(value) for key, value in keys(Config)}
    assert written == wanted


def test_the_examples_of_configuration_are_accepted() -> None:
    for page in ("configuration.md", "job-kinds.md"):
        blocks = re.findall(r"^```yaml\n(.*?)^```", (ROOT / "docs" / page).read_text(), flags=re.MULTILINE | re.DOTALL)
        files = [block for block in blocks if re.match(r"kinds:|start:", block)]
        assert files, page
        for block in files:
            with_custom(Config.model_validate(yaml.safe_load(block)).kinds)


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_no_command_in_a_sentence_is_broken_over_two_lines(document: Path) -> None:
    """It could not be copied, and what runs the commands of the pages would not see it."""
    sentences = re.sub(r"^ *```.*?^ *```", "", document.read_text(), flags=re.MULTILINE | re.DOTALL)
    assert [line for line in sentences.splitlines() if line.count("`") % 2] == []


def plain(value: object) -> object:
    if isinstance(value, tuple):
        return list(value)
    return str(value) if isinstance(value, Path) else value


def test_every_reason_and_refusal_has_its_line_in_the_runbook() -> None:
    from webhook.core.reasons.reasons import Code
    from webhook.server.review.answer import Refusal

    page = (ROOT / "docs" / "operating.md").read_text()
    assert [code for code in (*Code, *Refusal) if f"`{code}`" not in page] == []


def test_every_make_target_that_the_documentation_names_is_there() -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):.*## ", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    named = {target for p in DOCUMENTS for target in re.findall(r"`make ([a-z0-9-]+)", p.read_text())}
    assert named - targets == set()
