"""Why an admitted gang is stopped, in a word: what entry, annotation, metric, event and read API say alike."""

from typing import Final

PREEMPTED: Final = "Preempted"
QUEUE_STOPPED: Final = "ClusterQueueStopped"
LOCAL_QUEUE_STOPPED: Final = "LocalQueueStopped"
"""It drains."""
HELD: Final = "OnHold"
"""Its owner suspended it: the word for why it waits then, too."""
LIMIT_REACHED: Final = "DeactivatedDueToMaximumExecutionTimeExceeded"
START_TIMEOUT: Final = "PodsReadyTimeout"
NO_NODE_LEFT: Final = "NoNodeLeft"
"""Before it was whole, the room for some of its pods went: to others, or with a node."""
ATTEMPTS_USED_UP: Final = "DeactivatedDueToRequeuingLimitExceeded"
"""It did not become whole in time once more than it is queued again."""
SIBLING_STOPPED: Final = "SiblingStopped"
"""Another job of its ensemble stopped or went away, and the rest cannot make the quorum."""
ENDED: Final = "Ended"
"""Of a gang of plain pods all that it started is gone while others of its group wait."""
NO_PERMIT: Final = "NoPermit"
"""A copy from a hub was not given leave to start in time: its room goes back."""
REBUILT: Final = "Rebuilt"
"""The ledger was rebuilt, and what is left of the gang is not worth going on with."""
HOLDS: Final = frozenset({HELD, "Deactivated", LIMIT_REACHED, ATTEMPTS_USED_UP})
"""Stops after which a gang waits for its owner, not in its queue; ``Deactivated`` is what earlier ledgers call HELD."""

NOT_ADMITTED: Final = "NotAdmitted"
"""It ran without a reservation."""
PREPARING: Final = "Preparing"
"""It was not stopped: the first half of a start in two patches is written."""
NEVER_ADMITTED: Final = frozenset({NOT_ADMITTED, PREPARING})
"""What stands in the place of a reason on jobs that were not stopped after an admission."""
