"""Nobody takes by a request what somebody else has reserved, or their place in the queue."""

from typing import Final

from tests.mutants.mutant import UNIT, Mutant

TALLY: Final = "webhook/server/pods/tally.py"
RESIZE_TESTS: Final = f"{UNIT}/server/pods/test_resizes.py"

REQUEST_MUTANTS: Final = (
    Mutant(
        "R",
        "what a pod was let grow to is given to nobody else",
        "webhook/server/pods/changes.py",
        "        tally.add_resize(namespace, uid, held, now, review.old_version)\n",
        "        pass\n",
        RESIZE_TESTS,
    ),
    Mutant(
        "R",
        "a pod has grown when it is seen at a later version",
        TALLY,
        "(not each.resized or pod.resource_version > each.version)",
        "True",
        RESIZE_TESTS,
    ),
    Mutant(
        "R",
        "of several resizes the largest counts until the last is seen",
        TALLY,
        "            price = price if unkept(most) else most\n",
        "",
        RESIZE_TESTS,
    ),
    Mutant(
        "R",
        "a pod that is made later shows nothing of a resize",
        TALLY,
        'Passed(price, None, "", now_seconds, inf, resized',
        'Passed(price, None, "", now_seconds, 0.0, resized',
        RESIZE_TESTS,
    ),
    Mutant(
        "R",
        "a label has no value of a built-in PriorityClass",
        "webhook/jobs/reading/gang.py",
        ' if kind == "PriorityClass" else None)',
        ")",
        f"{UNIT}/jobs/reading/test_built_in_priorities.py",
    ),
    Mutant(
        "R",
        "only what holds the room that it was started with is resumed by its owner",
        "webhook/server/jobs/changes.py",
        "    return held.adopted or (started is not None and started.is_of(held))\n",
        "    return True\n",
        f"{UNIT}/server/jobs/test_validate_jobs.py -k resumed_by_its_owner",
    ),
    Mutant(
        "R",
        "nobody is told that a work queue is stopped which is not",
        "webhook/cluster/incomplete_start.py",
        "    if job.winding_down and shared is None:\n",
        "    if False:\n",
        f"{UNIT}/visibility/documents/test_workload.py -k work_queue",
    ),
)
