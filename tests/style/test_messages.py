"""No code reads our own messages back: what is wrong and what blocks are values; text is made of them at the edge."""

import ast
import re
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from webhook.core.notation.counted import counted, does
from webhook.core.notation.counted_jobs import amount_text
from webhook.core.notation.quantity import MILLI
from webhook.core.reasons.blockers import QuotaMissing, render

ROOT = Path(__file__).parents[2]
MODULES = sorted((ROOT / "webhook").rglob("*.py"))

TEXTS = {"why", "message", "fix", "help", "reason_text"}
"""Attributes that hold sentences for people."""
SAID = {"error", "problem", "reason", "refusal", "answer", "finding", "blocker", "amount", "block"}
"""Names of what ``str`` makes a sentence of."""
NOUNS = {"job", "error", "warning"}
VERBS = {"are", "have", "were"}
"""Beside those that the product has counted somewhere: what is said of two there is not to be said of one elsewhere."""
NO_NUMBERS = {"where", "whose", "member", "name", "kind", "namespace", "group", "DOMAIN"}
"""Names of text in front of such a word."""
TAKES_APART = {
    *("startswith", "endswith", "removeprefix", "removesuffix", "split", "rsplit", "splitlines", "partition"),
    *("rpartition", "find", "rfind", "index", "count"),
}
MATCHES = {"match", "fullmatch", "search", "findall", "finditer", "split", "sub", "subn"}


def is_message(node: ast.expr, known: set[str]) -> bool:
    """Whether an expression is a sentence that we wrote, or a name that was given one."""
    match node:
        case ast.Attribute(attr=attr):
            return attr in TEXTS
        case ast.Name(id=name):
            return name in known
        case ast.Call(func=ast.Name(id="str"), args=[ast.Name(id=name)]):
            return name in SAID
        case ast.Call(func=ast.Name(id="str"), args=[ast.Attribute(attr=attr)]):
            return attr in SAID
        case ast.Call(func=ast.Attribute(value=value, attr="lower" | "strip" | "upper")):
            return is_message(value, known)
        case ast.Subscript(value=value):
            return is_message(value, known)
    return False


def read_back(tree: ast.AST) -> Iterator[int]:
    """Yield the lines in which a message is taken apart, matched or searched."""
    for scope in ast.walk(tree):
        if not isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        nodes = list(ast.walk(scope))
        known: set[str] = set()
        for node in nodes:
            if isinstance(node, ast.Assign) and is_message(node.value, known):
                known |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        yield from (node.lineno for node in nodes if isinstance(node, ast.expr) and reads_back(node, known))


def reads_back(node: ast.expr, known: set[str]) -> bool:
    """Whether an expression takes a message apart, matches it, searches it or compares it with a text."""
    match node:
        case ast.Call(func=ast.Attribute(value=value, attr=attr), args=args):
            apart = attr in TAKES_APART and is_message(value, known)
            return apart or (attr in MATCHES and any(is_message(argument, known) for argument in args))
        case ast.Compare(left=left, ops=[ast.In() | ast.NotIn()], comparators=[where]):
            return is_message(where, known) or (is_text(left) and names_who_refuses(where))
        case ast.Compare(left=left, ops=[ast.Eq() | ast.NotEq()], comparators=[ast.Constant(value=str(text))]):
            return bool(text) and is_message(left, known)
    return False


def is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def names_who_refuses(node: ast.expr) -> bool:
    """Whether an expression is the name of what says no, from whose spelling nothing may be told."""
    return isinstance(node, ast.Attribute) and node.attr == "where"


def test_no_code_reads_our_own_messages_back() -> None:
    found = {
        str(path.relative_to(ROOT)): lines
        for path in MODULES
        if (lines := sorted(set(read_back(ast.parse(path.read_text())))))
    }
    assert found == {}


DECIDES = ("assignment", "backfill", "ledger", "placement", "quota")
"""Packages of the core that say by values what is in the way of a gang."""
TELLS = {"core/assignment/request.py", "core/placement/beyond.py", "core/placement/explain.py"}
"""What a gang can never have, said once for all of its kind, and what nodes lack, said when somebody asks."""


def test_what_blocks_a_gang_is_a_value_until_somebody_asks() -> None:
    """A decision is made far more often than anybody reads why."""
    made = {
        path.relative_to(ROOT / "webhook").as_posix()
        for package in DECIDES
        for path in (ROOT / "webhook/core" / package).glob("*.py")
        if any(
            isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Reason"
            for node in ast.walk(ast.parse(path.read_text()))
        )
    }
    assert made == TELLS


@pytest.mark.parametrize(
    "line",
    [
        'return str(error).partition("; ")',
        "return _PROBLEM.fullmatch(error.message)",
        'return re.match("a", reason.message)',
        'return "asks" in problem.why',
        'return reason.where if " " in reason.where else ""',
        'text = str(error)\n    return text.removeprefix("Value error, ")',
        'return str(amount).removeprefix("asks ")',
        'return problem.why == "is missing"',
    ],
)
def test_what_reads_a_message_back_is_found(line: str) -> None:
    assert list(read_back(ast.parse(f"def read():\n    {line}")))


def test_making_a_message_is_no_reading_back() -> None:
    text = "def say():\n    return f'{problem.path}: {problem.why}; {problem.fix}' if problem.why else str(problem)"
    assert list(read_back(ast.parse(text))) == []


PRODUCT = [path for path in MODULES if "laboratory" not in path.parts]
"""A replay has thousands of jobs."""
TREES = {path: ast.parse(path.read_text()) for path in PRODUCT}


def said_of_two(trees: Iterable[ast.AST]) -> re.Pattern[str]:
    """Return what finds, at the beginning of a text, a word that ``counted`` and ``does`` of some tree say of two."""
    nouns, verbs = set(NOUNS), set(VERBS)
    for node in (node for tree in trees for node in ast.walk(tree)):
        match node:
            case ast.Call(func=ast.Name(id="counted"), args=[_, ast.Constant(value=str(noun))]):
                nouns.add(noun)
            case ast.Call(func=ast.Name(id="does"), args=[_, ast.Constant(value=str(verb)), *_]):
                verbs.add(verb)
    words = "|".join(sorted({f"{noun}s" for noun in nouns} | verbs))
    return re.compile(rf"(?: more| fewer)?(?: of [a-z' ]+?| that| no longer)? (?:{words})\b")


SAID_OF_TWO = said_of_two(TREES.values())


def never_one(tree: ast.AST, said: re.Pattern[str] = SAID_OF_TWO) -> Iterator[int]:
    """Yield the lines with a number that may be 1 before a word that is said of two."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.JoinedStr):
            continue
        for number, then in pairwise(node.values):
            text = then.value if isinstance(then, ast.Constant) else ""
            if isinstance(number, ast.FormattedValue) and said.match(str(text)) and may_be_one(number.value):
                yield number.lineno


def may_be_one(value: ast.expr) -> bool:
    """Whether an expression may be the number 1: neither text, nor a bound, which is more than one."""
    match value:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return not (name.isupper() or name in NO_NUMBERS)
        case ast.Call(func=ast.Name(id="counted" | "does" | "some")):
            return False
    return True


@pytest.mark.parametrize("path", PRODUCT, ids=lambda path: str(path.relative_to(ROOT)))
def test_one_is_spoken_of_in_the_singular(path: Path) -> None:
    """``core.notation.counted`` says both: 1 pod fits, 2 pods fit."""
    assert list(never_one(TREES[path])) == []


@pytest.mark.parametrize(
    "text",
    [
        "asks for {count} pods of {each}",
        "{kept_out} take none",
        "{few} of its pods fit",
        "{missing} more of its pods fit",
        "{missing} more fit in {where}",
        "{len(found) - SHOWN} more nodes",
        "{live + coming} exist or are being created",
        "{leaving} that are being deleted",
    ],
)
def test_what_is_said_of_two_after_a_number_is_noticed(text: str) -> None:
    assert list(never_one(ast.parse(f'f"{text}"'))) == [1]


def test_what_is_no_number_or_more_than_one_may_be_many() -> None:
    assert list(never_one(ast.parse("f\"more than {PODS_MAX} pods, {counted(n, 'pod')} are {whose} pods\""))) == []


def test_a_word_that_is_counted_anywhere_is_noticed_everywhere() -> None:
    elsewhere = said_of_two([ast.parse("counted(n, 'zebra'); does(n, 'graze')")])
    assert list(never_one(ast.parse('f"{n} zebras"; f"{n} graze"'), elsewhere)) == [1, 1]


@pytest.mark.parametrize("number", [0, 1, 2])
def test_numbers_and_what_is_counted_agree(number: int) -> None:
    one = number == 1
    assert counted(number, "pod") == f"{number} pod{'' if one else 's'}"
    assert does(number, "fit", "more") == f"{number} more fit{'s' if one else ''}"
    assert (does(number, "are"), does(number, "have")) == (
        (f"{number} is", f"{number} has") if one else (f"{number} are", f"{number} have")
    )
    assert amount_text(number * MILLI, "pods") == counted(number, "pod")
    missing = render(QuotaMissing("pods", number * MILLI))
    assert missing == f"needs {number} more pod{'' if one else 's'}"
