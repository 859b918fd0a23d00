"""Selector texts say what the selectors mean."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.core.model.gang import Requirement
from webhook.core.model.policy import LabelSelector
from webhook.kube.selectors import parse_labels

LABELS = {"app": "web", "tier": "a", "weight": "5"}
KEYS = st.sampled_from(["app", "tier", "weight", "tutti.dev/queue-name"])
VALUES = st.sampled_from(["web", "a", "5", "b-2", ""])
REQUIREMENTS = st.one_of(
    st.builds(Requirement, KEYS, st.sampled_from(["In", "NotIn"]), st.lists(VALUES, min_size=1, max_size=3).map(tuple)),
    st.builds(Requirement, KEYS, st.sampled_from(["Exists", "DoesNotExist"]), st.just(())),
    st.builds(Requirement, KEYS, st.sampled_from(["Gt", "Lt"]), st.tuples(st.sampled_from(["3", "5", "9"]))),
)


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("", True),
        ("app=web", True),
        ("app==web,tier=a", True),
        ("app=db", False),
        ("app!=db", True),
        ("missing!=anything", True),
        ("tier in (a, b)", True),
        ("tier notin (a,b)", False),
        ("app", True),
        ("!app", False),
        ("!missing,app=web", True),
        ("weight>4,weight<6", True),
        ("weight > 5", False),
    ],
)
def test_a_text_selects_what_kubectl_would_select(text: str, matches: bool) -> None:
    assert parse_labels(text).matches(LABELS) is matches


@pytest.mark.parametrize("text", ["app=web,", "in (a)", "app in a,b", "a b", "=x", "app=(x)"])
def test_what_is_not_a_selector_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a label selector term"):
        parse_labels(text)


def written(selector: LabelSelector) -> str:
    equalities = [f"{key}={value}" for key, value in selector.match_labels.items()]
    return ",".join(equalities + [requirement_text(requirement) for requirement in selector.match_expressions])


def requirement_text(requirement: Requirement) -> str:
    match requirement.operator:
        case "Exists":
            return requirement.key
        case "DoesNotExist":
            return f"!{requirement.key}"
        case "Gt" | "Lt" as operator:
            return f"{requirement.key}{'>' if operator == 'Gt' else '<'}{requirement.values[0]}"
        case operator:
            return f"{requirement.key} {operator.lower()} ({','.join(requirement.values)})"


@given(
    selector=st.builds(
        LabelSelector,
        st.dictionaries(KEYS, st.sampled_from(["web", "a", "5"]), max_size=2),
        st.lists(REQUIREMENTS, max_size=3).map(tuple),
    ),
    labels=st.dictionaries(KEYS, VALUES),
)
def test_a_selector_written_and_read_selects_the_same(selector: LabelSelector, labels: dict[str, str]) -> None:
    assert parse_labels(written(selector)).matches(labels) == selector.matches(labels)


@given(st.lists(st.sampled_from(["app", "tier", " in ", " notin ", "(", ")", ",", "=", "!", "a"]), max_size=14))
def test_commas_outside_parentheses_and_no_others_end_a_term(parts: list[str]) -> None:
    text = "".join(parts)
    # What is before and what follows each comma says the same, at a cost that grows with the square of the commas.
    terms = re.split(r",(?![^(]*\))", text)
    try:
        expected = [parse_labels(term).match_expressions for term in terms]
    except ValueError:
        expected = [()]
    if all(expected) or not text.strip():
        assert parse_labels(text).match_expressions == tuple(one for term in expected for one in term)
    else:
        with pytest.raises(ValueError, match="not a label selector term"):
            parse_labels(text)
