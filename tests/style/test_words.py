"""One word, one meaning: each term of the glossary is in use, and words that nobody says today are not."""

import re

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
