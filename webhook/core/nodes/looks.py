"""What was looked at on the nodes for decisions, and for questions.

A question changes no decision: it takes no turn from one, and what it has looked at is not kept beside what decisions
rest on. Who asks sees what decisions know, and looks at as many nodes of its own in each round. Where it looks at a few
nodes that have changed since, they count as before for decisions: what these know is the same, and so is what it costs.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from webhook.core.nodes.ranking import Ranking
from webhook.core.nodes.shape import Shape
from webhook.core.nodes.turns import Turns

QUESTIONS_MAX: Final = 32
"""Rankings that are kept for questions: those of one gang are asked about several times."""


@dataclass(slots=True)
class Looks:
    """Those for one of the two."""

    rankings: dict[Shape, Ranking] = field(default_factory=dict)
    """By shape; the one used longest ago is the first."""
    turns: Turns = field(default_factory=Turns)
    """Of new shapes."""

    def may_ask(self, works: Mapping[Shape, int], gang: str) -> bool:
        """Return whether shapes may be looked at in this round for ``gang``, each of which takes so much."""
        if not self.turns.take(works, gang):
            return False
        # What it lacks is not to take the place of what it has.
        self.rankings.update({shape: self.rankings.pop(shape) for shape in works if shape in self.rankings})
        return True
