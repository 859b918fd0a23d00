"""Rule 8: what a gang holds is given away only when it has no pod, and none is on its way."""

from typing import Final

from tests.mutants.mutant import UNIT, Mutant

ASSESS: Final = "webhook/controllers/gangs/assess.py"
GATED_PODS: Final = "webhook/controllers/gangs/gated_pods.py"
RECOVERY: Final = "webhook/controllers/ledger/recovery.py"
GATED_PODS_TESTS: Final = f"{UNIT}/controllers/gangs/test_gated_pods.py"
ASSESS_TESTS: Final = f"{UNIT}/controllers/gangs/test_assess.py"
LATE_PODS_TESTS: Final = f"{UNIT}/controllers/gangs/test_late_pods.py"
RECOVERY_TESTS: Final = f"{UNIT}/controllers/ledger/test_recovery.py"
RULES_TESTS: Final = f"{UNIT}/controllers/ledger/test_ledger_rules.py"
LATE_PODS: Final = "webhook/controllers/gangs/late_pods.py"

RELEASE_MUTANTS: Final = (
    Mutant(
        "4",
        "who was suspended by their owner waits for them though no entry says so any more",
        ASSESS,
        "    if job.admission is not None:\n        # A stop of ours takes",
        "    if False:\n        # A stop of ours takes",
        ASSESS_TESTS,
    ),
    Mutant(
        "8",
        "a rebuild waits for the pods of a job that is deleted meanwhile",
        RECOVERY,
        "            await self._let_leave()\n            if not",
        "            if not",
        RECOVERY_TESTS,
    ),
    Mutant(
        "8",
        "a finished gang holds its entry while pods are left",
        ASSESS,
        "return Step.RELEASE if pods_present == 0 and not (reservation.adopted and job.active) else Step.NOTHING",
        "return Step.RELEASE",
        ASSESS_TESTS,
    ),
    Mutant(
        "8",
        "a stopped gang of plain pods holds its entry while pods are left",
        GATED_PODS,
        "        return Step.NOTHING if let_go else Step.RELEASE\n",
        "        return Step.RELEASE\n",
        GATED_PODS_TESTS,
    ),
    Mutant(
        "8",
        "that no pod is known proves nothing while the pods lag behind",
        "webhook/controllers/gangs/pod_proof.py",
        "        if self._gangs.of(uid).proved_gone:\n",
        "        if True:\n",
        RULES_TESTS,
    ),
    Mutant(
        "8",
        "of a job that is gone pods may be on their way",
        LATE_PODS,
        "    return reservation.kind == POD_GROUP.key or (",
        "    return job is None or reservation.kind == POD_GROUP.key or (",
        LATE_PODS_TESTS,
    ),
    Mutant(
        "8",
        "a gang that lacked pods when it was stopped or deleted may be sent others",
        LATE_PODS,
        "            since.append(record.left_seconds or now)\n",
        "            pass\n",
        LATE_PODS_TESTS,
    ),
    Mutant(
        "8",
        "a gang was whole in this run, not in an earlier one",
        LATE_PODS,
        "reservation.since_seconds in (record.whole_since, record.unstarted_since)",
        "record.whole_since or record.unstarted_since == reservation.since_seconds",
        LATE_PODS_TESTS,
    ),
    Mutant(
        "8",
        "what a leader that has just begun sees may be of an earlier run",
        LATE_PODS,
        "        since = [self.term_seconds]\n",
        "        since = []\n",
        LATE_PODS_TESTS,
    ),
    Mutant(
        "8",
        "that a job has ended only its controller says",
        LATE_PODS,
        "(finished and reservation.kind == JOB.key)",
        "finished",
        LATE_PODS_TESTS,
    ),
    Mutant(
        "8",
        "what has ended may be sent pods by another controller than the one that says so",
        LATE_PODS,
        "    if job is None or job.deleting or job.finished is not None:\n",
        "    if job is None or job.deleting:\n",
        LATE_PODS_TESTS,
    ),
    Mutant(
        "8",
        "a pod that has succeeded may be replaced where its controller says which work is done",
        LATE_PODS,
        'job.finished != "Succeeded" or job.ended',
        'job.finished != "Succeeded"',
        LATE_PODS_TESTS,
    ),
    Mutant(
        "8",
        "what an earlier leader has reserved it may have started",
        LATE_PODS,
        "        if job.for_a_member or gated_pods.is_pod_group(job):\n",
        "        if job.for_a_member or gated_pods.is_pod_group(job) or job.suspended:\n",
        LATE_PODS_TESTS,
    ),
    Mutant(
        "8",
        "what was started since it was seen suspended may be sent pods",
        "webhook/controllers/gang_record.py",
        "        self.started_seconds, self.unstarted_since = now, 0.0\n",
        "        self.started_seconds = now\n",
        LATE_PODS_TESTS,
    ),
    Mutant(
        "8",
        "that a pod was lost is noted when it is read, though no cycle looks at its gang",
        "webhook/controllers/loop/dirty_set.py",
        "            self._late_pods.note_loss(old, new)\n",
        "            pass\n",
        LATE_PODS_TESTS,
    ),
    Mutant(
        "8",
        "a pod that was lost before its job was to go is owed, however late that is read",
        LATE_PODS,
        "now_is.resource_version < record.left_version:\n",
        "False:\n",
        LATE_PODS_TESTS,
    ),
    Mutant(
        "8",
        "a pod that is being deleted on a node is there",
        "webhook/core/model/pods.py",
        "(terminating and not node)",
        "terminating",
        f"{UNIT}/controllers/gangs/test_pod_proof.py",
    ),
    Mutant(
        "8",
        "pods without an owner are those of the Job that their label names, though that was seen to go",
        "webhook/jobs/plain_pods/pod.py",
        '"" if owner else made_for(labels)) if gang is None',
        '"") if gang is None',
        f"{UNIT}/cluster/test_by_name.py -k orphans_of_a_job",
    ),
    Mutant(
        "8",
        "what is in another namespace is no part of a gang, whatever it says of its owner",
        "webhook/cluster/lineage.py",
        "level = [child for child in found if self._namespaces[child] == namespace]",
        "level = list(found)",
        f"{UNIT}/cluster/test_view.py -k another_namespace",
    ),
    Mutant(
        "8",
        "what cannot be stopped keeps its room while its owner has suspended it",
        ASSESS,
        "        return Step.HOLD if reservation.evictable else Step.NOTHING\n",
        "        return Step.HOLD\n",
        ASSESS_TESTS,
    ),
    Mutant(
        "8",
        "a rebuild takes what its owner paused for no gang that is stopped",
        "webhook/cluster/rebuild.py",
        " and (job.gang.evictable or job.admission is None):\n",
        ":\n",
        f"{UNIT}/controllers/gangs/test_run_again.py",
    ),
)
