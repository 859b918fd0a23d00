"""What a gang's controller made brings no pods that nobody has reserved, and leaves its gang for no other queue."""

from typing import Final

from tests.mutants.mutant import UNIT, Mutant

CHILDREN: Final = "webhook/server/jobs/children.py"
GROWTH: Final = "webhook/server/jobs/child_growth.py"
GROWING_TESTS: Final = f"{UNIT}/server/jobs/test_growing_children.py"
GIVEN_BACK_TESTS: Final = f"{UNIT}/server/jobs/test_given_back.py"
LOSING_TESTS: Final = f"{UNIT}/server/jobs/test_losing_an_owner.py"
IN_REVIEW: Final = f"{UNIT}/controllers/gangs/test_children_in_review.py"
VIEW: Final = "webhook/cluster/view.py"
VIEW_TESTS: Final = f"{UNIT}/cluster/test_view.py"
READING: Final = "webhook/jobs/reading/job.py"
MADE_FOR_TESTS: Final = f"{UNIT}/jobs/reading/test_made_for.py"

CHILD_MUTANTS: Final = (
    Mutant(
        "C",
        "a child whose pods bear no label does not grow",
        GROWTH,
        "        return growth(replace(before.asks, pod_sets=bare), now.asks, None, but=judged_now)\n",
        "        return None\n",
        GROWING_TESTS,
    ),
    Mutant(
        "C",
        "an autoscaler of marked pods is not refused",
        GROWTH,
        "None, but=judged_now)",
        "None)",
        GROWING_TESTS,
    ),
    Mutant(
        "C",
        "the name of marked pods makes no room for others",
        GROWTH,
        "replace(before.asks, pod_sets=bare)",
        "before.asks",
        GROWING_TESTS,
    ),
    Mutant(
        "C",
        "a child that cannot be read keeps its spec",
        GROWTH,
        "    if _spec(kind, old) == _spec(kind, obj):\n",
        "    if True:\n",
        GROWING_TESTS,
    ),
    Mutant(
        "C",
        "nobody takes marks off what cannot be read",
        CHILDREN,
        "    if own_marks(old) != own_marks(obj):\n",
        "    if own_fields(rules, kind, old) != own_fields(rules, kind, obj):\n",
        GROWING_TESTS,
    ),
    Mutant(
        "C",
        "nobody plants a mark on what a job in no queue made",
        "webhook/server/jobs/changes.py",
        "    if is_child(kind, old, rules.kinds) and (refusal :=",
        "    if False and (refusal :=",
        LOSING_TESTS,
    ),
    Mutant(
        "C",
        "a mark counts only where Tutti writes it",
        CHILDREN,
        "        return any(mark is not None for mark in marks.values())\n",
        "        return any(mark is not None for mark in marks.values()) or bool(_gangs_named(old))\n",
        LOSING_TESTS,
    ),
    Mutant(
        "C",
        "a mark on the object itself counts no more where its templates cannot be read",
        CHILDREN,
        " if mark != _ON_ITSELF)",
        ")",
        LOSING_TESTS,
    ),
    Mutant(
        "C",
        "a queue that does not exist is another queue",
        CHILDREN,
        "    return named != entry.queue and (label is not None or grouped)\n",
        "    return named not in (None, entry.queue)\n",
        LOSING_TESTS,
    ),
    Mutant(
        "C",
        "an owner is of the same namespace",
        CHILDREN,
        "    if entry is not None and entry.namespace != namespace:\n",
        "    if False:\n",
        LOSING_TESTS,
    ),
    Mutant(
        "C",
        "an orphan that runs joins no PodGroup",
        "webhook/server/jobs/changes.py",
        " or _groups_an_orphan(change):\n",
        ":\n",
        GROWING_TESTS,
    ),
    Mutant(
        "C",
        "nothing makes pods run again whose room was given back",
        "webhook/server/jobs/growth.py",
        "        if now.get(name, 0) < number:\n",
        "        if False:\n",
        GIVEN_BACK_TESTS,
    ),
    Mutant(
        "C",
        "nor where it is not known yet what is given back",
        "webhook/server/jobs/changes.py",
        "    if not forgets(before, asking) or (view.ledger_trusted and not behind):\n",
        "    if True:\n",
        f"{UNIT}/server/jobs/test_elastic_jobs.py",
    ),
    Mutant(
        "C",
        "a Job gives nothing back before it is started",
        "webhook/jobs/reading/record.py",
        "    return None if suspended else {}\n",
        "    return {}\n",
        f"{UNIT}/server/jobs/test_elastic_jobs.py",
    ),
    Mutant(
        "C",
        "only a Job gives room back while it runs",
        "webhook/jobs/reading/status.py",
        '    return kind.reclaim == "job"\n',
        "    return kind.reclaim is not None\n",
        GIVEN_BACK_TESTS,
    ),
    Mutant(
        "C",
        "others have no room in which pods are",
        "webhook/cluster/view.py",
        "max(self.present(reservation.namespace, reservation.uid), 0 if",
        "max(0, 0 if",
        GIVEN_BACK_TESTS,
    ),
    Mutant(
        "C",
        "nor any in which pods are that only their Job's status tells of yet",
        VIEW,
        "0 if job is None else job.present)\n",
        "0)\n",
        GIVEN_BACK_TESTS,
    ),
    Mutant(
        "C",
        "pods are created in what is left of their gang's room",
        "webhook/server/pods/gang_pods.py",
        "    held = reserved.count - rules.view.fences.given_back(namespace, uid, reserved.name)\n",
        "    held = reserved.count\n",
        GIVEN_BACK_TESTS,
    ),
    Mutant(
        "C",
        "what asks for a queue is part of the gang that holds its room",
        "webhook/cluster/feeds.py",
        '                alone = alone and self.view.holder(new.namespace, new.uid) in ("", new.uid)\n',
        "",
        IN_REVIEW,
    ),
    Mutant(
        "C",
        "an orphan that names its gang's queue is not adopted beside that gang",
        VIEW,
        "        return found if entry is not None and entry.adopted and",
        "        return found if False and",
        IN_REVIEW,
    ),
    Mutant(
        "C",
        "what came after a gang was adopted is charged in the queue that it names",
        VIEW,
        " and entry.adopted and job.created_seconds <= entry.since_seconds",
        "",
        VIEW_TESTS,
    ),
    Mutant(
        "C",
        "an orphan with a reservation of its own holds no other",
        VIEW,
        'self._reserved_above(namespace, each) in ("", uid) for',
        "True for",
        VIEW_TESTS,
    ),
    Mutant(
        "C",
        "who waits for a queue names no gang to be charged to",
        READING,
        "(not asks_itself or _is_bare(kind, sites))",
        "True",
        MADE_FOR_TESTS,
    ),
    Mutant(
        "C",
        "who leads next knows the orphan that names a queue",
        READING,
        "(not asks_itself or _is_bare(kind, sites))",
        "not asks_itself",
        IN_REVIEW,
    ),
    Mutant(
        "C",
        "a name frees nothing that runs of the queue that it asks for",
        READING,
        " if by_label and (suspended or not asks_itself) else",
        " if by_label else",
        MADE_FOR_TESTS,
    ),
    Mutant(
        "C",
        "an orphan keeps the labels that say whose it was",
        CHILDREN,
        "    if owner_of(old) is not None or _makers_borne(kind, old) == _makers_borne(kind, obj):\n",
        "    if True:\n",
        IN_REVIEW,
    ),
)
