"""One word, one meaning: each term of the glossary is in use, outdated words are not, and sentences come to an end."""

import re
from collections.abc import Iterator
from itertools import combinations

from tests.style.test_tidy import DOCUMENTS, MODULES, ROOT, name

OUTDATED = re.compile(r"\b(anew|whom|in vain|thereof|therein|wherein|hitherto)\b", re.IGNORECASE)
GIVEN_UP = re.compile(
    r"\bStartTimeout\b|(?<!Cluster)(?<!Local)QueueStopped\b|\bqueuePolicy\b|HTTP503|more is free"
    r"|[\"'`](Held|Block|Deactivated)[\"'`]"
)
"""Second words for a state that has another."""
KUEUES_OWN = ("webhook/core/reasons/eviction.py", "webhook/laboratory/dry_run/workloads/reading.py")
"""Who reads what others wrote."""
HISTORY = re.compile(r"CHANGELOG\.md|docs/decisions/")
"""Written once, never rewritten."""
GLOSSARY = ROOT / "docs/glossary.md"
SENTENCE_WORDS_MAX = 50
SAME_WORDS = 0.7
"""Share of the words of the shorter of two lines that are also in the longer, from which on they say the same."""


def terms() -> list[str]:
    rows = [line.split("|")[1].strip() for line in GLOSSARY.read_text().splitlines() if line.startswith("| ")]
    return [term.strip() for row in rows if row != "word" for term in re.split("[,·]", row)]


def test_every_term_of_the_glossary_is_used() -> None:
    # Code writes two words as one name: ``pod_set``, ``PodSet``.
    said = "\n".join(p.read_text() for p in MODULES if name(p).startswith("webhook")).lower()
    said += "\n".join(p.read_text() for p in DOCUMENTS if p != GLOSSARY and not HISTORY.search(name(p))).lower()
    unused = [term for term in terms() if not re.search(term.lower().replace(" ", r"[\s_-]?"), said)]
    assert unused == []


def test_no_term_of_the_glossary_stands_twice() -> None:
    assert sorted(terms()) == sorted(set(terms()))


def test_words_are_those_of_today() -> None:
    excepted = re.compile(f"{HISTORY.pattern}|tests/style/test_words.py")
    paths = [path for path in [*MODULES, *DOCUMENTS] if not excepted.search(name(path))]
    found = {name(p): lines for p in paths if (lines := [x for x in p.read_text().splitlines() if OUTDATED.search(x)])}
    assert found == {}


def test_a_state_is_called_by_one_word_wherever_people_read_it() -> None:
    paths = [p for p in MODULES if name(p).startswith("webhook") and name(p) not in KUEUES_OWN]
    paths += [p for p in DOCUMENTS if not HISTORY.search(name(p))]
    found = {name(p): lines for p in paths if (lines := [x for x in p.read_text().splitlines() if GIVEN_UP.search(x)])}
    assert found == {}


def test_a_term_of_the_glossary_names_one_class() -> None:
    classes: dict[str, list[str]] = {}
    for path in MODULES:
        if name(path).startswith("webhook") and "/laboratory/" not in name(path):
            for found in re.findall(r"^class ([A-Z]\w*)", path.read_text(), re.MULTILINE):
                classes.setdefault(re.sub(r"(?<=[a-z])(?=[A-Z])", " ", found).lower(), []).append(name(path))
    assert {term: classes[term] for term in terms() if len(classes.get(term, ())) > 1} == {}


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a page, outside code, headings and tables; inline code is one word, a target none."""
    lines = re.sub(r"^ *```.*?^ *```", "", text, flags=re.MULTILINE | re.DOTALL).split("\n")
    prose = "\n".join("" if line.startswith(("|", "#", "    ")) else line for line in lines)
    for paragraph in re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )", prose):
        words = re.sub(r"\]\([^)]*\)", "]", re.sub(r"`[^`]*`", "Code", " ".join(paragraph.split())))
        yield from re.split(r"(?<=[.?!])\s+(?=[^a-z])", words)


def too_long(text: str) -> list[str]:
    return [sentence for sentence in sentences(text) if len(sentence.split()) > SENTENCE_WORDS_MAX]


def test_no_sentence_of_a_page_has_more_words_than_a_reader_keeps_in_mind() -> None:
    assert {name(page): found for page in DOCUMENTS if (found := too_long(page.read_text()))} == {}


def test_a_sentence_of_many_clauses_is_noticed_and_two_are_not() -> None:
    half = "Word " * (SENTENCE_WORDS_MAX // 2)
    assert len(too_long(f"- {half}; and {half}end.")) == 1
    assert too_long(f"- {half}end. {half}end.\n- {half}`a b c`") == []


def said_twice(text: str) -> list[tuple[str, str]]:
    """Return the lines of a list that say the same, as a merge leaves them that keeps both sides of a changed line."""
    lines = [line for line in re.split(r"\n(?=- |\n|#)", text) if line.startswith("- ")]
    words = [(line, set(line.split())) for line in lines]
    return [
        (one[:60], other[:60])
        for (one, its), (other, others) in combinations(words, 2)
        if len(its & others) > SAME_WORDS * max(min(len(its), len(others)), max(len(its), len(others)) / 2)
    ]


def test_the_changelog_says_nothing_twice() -> None:
    assert said_twice((ROOT / "CHANGELOG.md").read_text()) == []


def test_a_line_and_what_became_of_it_are_noticed() -> None:
    told = "- A kind whose lists are no lists kept every process from becoming ready.\n  It counts as unread.\n"
    mended = (
        "- A kind whose lists are no lists counts as unread.\n  Before, it kept every process from becoming ready.\n"
    )
    other = "- A pod that is deleted counts until it is gone.\n"
    assert len(said_twice(told + other + mended)) == 1
