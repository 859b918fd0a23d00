"""Volcano's HyperNode (``topology.volcano.sh/v1alpha1``): which nodes are near each other, in tiers.

As in Volcano, a member that is a HyperNode is named exactly. A member that is a node is named, or found by a regular
expression that matches somewhere in its name, or by its labels. A selector that lists no labels has no nodes. A
HyperNode with a mistake in it is left out.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import re2

from webhook.core.model.policy import HyperNode, LabelSelector
from webhook.dialects.field import Field
from webhook.dialects.fragment import Fragment, opened
from webhook.dialects.selector import label_selector

GROUP: Final = "topology.volcano.sh"
KIND: Final = "HyperNode"
PATTERN_MAX: Final = 256
"""Characters of a regular expression: each is tried on the name of every node."""
_OPTIONS: Final = re2.Options()
_OPTIONS.log_errors = False
_WAYS: Final = ("exactMatch", "regexMatch", "labelMatch")


@dataclass(frozen=True, slots=True)
class _Pattern:
    """A regular expression of Go, as in Volcano: what it takes grows with a name's length and no faster."""

    text: str
    compiled: Any = field(compare=False, repr=False)

    def search(self, text: str, /) -> object:
        return self.compiled.search(text)


def compile_object(obj: Mapping[str, object]) -> Fragment:
    """Return what a HyperNode defines, and what is wrong with it. Never raises."""
    fragment, at = opened(obj)
    spec = at["spec"]
    spec.only(("tier", "tierName", "members"))
    if not spec["tier"].present:
        spec["tier"].error("is missing", "write the tier, 1 for the nodes that are nearest to each other")
    tier, name = spec["tier"].integer(least=0), spec["tierName"].text()
    nodes, below = set[str](), set[str]()
    patterns, selectors = list[_Pattern](), list[LabelSelector]()
    for member in spec["members"].items(least=1):
        member.only(("type", "selector"))
        kind, selector = member["type"].text(), member["selector"]
        if kind not in ("Node", KIND):
            member["type"].error("is not a type of member", f"write Node or {KIND}")
        selector.only(_WAYS)
        stated = [way for way in _WAYS if selector[way].present]
        if len(stated) != 1:
            selector.error(f"names {len(stated)} of {', '.join(_WAYS)}", "write one of them")
        elif kind == KIND and stated != ["exactMatch"]:
            selector[stated[0]].error("does not find HyperNodes, nor does it in Volcano", "name one by exactMatch")
        elif stated == ["exactMatch"]:
            (below if kind == KIND else nodes).add(_name(selector["exactMatch"]))
        elif stated == ["regexMatch"]:
            patterns += _pattern(selector["regexMatch"]["pattern"])
        else:
            selectors += _selector(selector["labelMatch"])
    if fragment.broken is None and tier is not None:
        found = HyperNode(
            fragment.source.name,
            tier,
            name,
            frozenset(nodes - {""}),
            tuple(patterns),
            tuple(selectors),
            frozenset(below - {""}),
        )
        fragment.hyper_nodes.append(found)
    return fragment


def _name(at: Field) -> str:
    at.mapping()
    if at["name"].value in (None, ""):
        at["name"].error("is missing", "name the node or HyperNode")
    return at["name"].subdomain()


def _pattern(at: Field) -> list[_Pattern]:
    text = at.text()
    if not text or len(text) > PATTERN_MAX:
        at.error(f"has {len(text)} characters", f"write 1 to {PATTERN_MAX}")
        return []
    try:
        return [_Pattern(text, re2.compile(text, _OPTIONS))]
    except re2.error as error:
        why = error.args[0].decode()
    except UnicodeEncodeError:
        # YAML can write half of a character.
        why = "it is not text"
    at.error(f"is not a regular expression of Go: {why}", "correct it")
    return []


def _selector(at: Field) -> list[LabelSelector]:
    found = label_selector(at)
    return [] if found is None or not (found.match_labels or found.match_expressions) else [found]
