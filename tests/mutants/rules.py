"""The rules of the ledger and of the fleet's protocol: the passages that keep each, and what they become without it."""

from typing import Final

from tests.mutants.brought_rules import BROUGHT_MUTANTS
from tests.mutants.child_rules import CHILD_MUTANTS
from tests.mutants.failure_rules import FAILURE_MUTANTS
from tests.mutants.fleet_rules import FLEET_MUTANTS
from tests.mutants.mutant import UNIT, Mutant
from tests.mutants.name_rules import NAME_MUTANTS
from tests.mutants.node_rules import NODE_MUTANTS
from tests.mutants.rebuild_rules import REBUILD_MUTANTS
from tests.mutants.release_rules import (
    ASSESS,
    ASSESS_TESTS,
    GATED_PODS,
    GATED_PODS_TESTS,
    RECOVERY,
    RECOVERY_TESTS,
    RELEASE_MUTANTS,
    RULES_TESTS,
)
from tests.mutants.request_rules import REQUEST_MUTANTS
from tests.mutants.sweep_rules import SWEEP_MUTANTS

KEEPER: Final = "webhook/controllers/ledger/keeper.py"
RECONCILER: Final = "webhook/controllers/loop/reconciler.py"
PATCHES: Final = "webhook/jobs/patches/template.py"
EDITED_TESTS: Final = f"{UNIT}/controllers/ledger/test_edited_ledger.py"
KEEPER_TESTS: Final = f"{UNIT}/controllers/ledger/test_ledger_keeper.py"
TERMS: Final = "webhook/controllers/ledger/terms.py"
FENCED: Final = "webhook/controllers/ledger/leased_writer.py"
STORED: Final = "webhook/controllers/ledger/stored.py"
PAGES: Final = "webhook/core/ledger/pages.py"
PAGES_TESTS: Final = f"{UNIT}/core/ledger/test_pages.py {UNIT}/controllers/ledger/test_ledger_pages.py"
WITNESS: Final = "webhook/core/ledger/witness.py"
WITNESS_TESTS: Final = f"{UNIT}/core/ledger/test_witness.py {UNIT}/controllers/ledger/test_put_back.py"
LEADERSHIP: Final = "webhook/controllers/loop/leadership.py"
TERMS_TESTS: Final = f"{UNIT}/controllers/ledger/test_terms.py"
WATCHDOG_TESTS: Final = f"{UNIT}/kube/test_watchdog.py"

START_BEFORE_THE_LEDGER: Final = """\
        for early in [job for job in batch.starts if job.uid in batch.put]:
            batch.starts.remove(early)
            assert self._keeper.ledger is not None
            version, flavors = self._keeper.ledger.version, self._view.policy.flavors
            operations = patches.start(early, batch.put[early.uid], version, flavors, kinds=self._feeds.kinds)
            self._effects.start(Effect("start", early, operations))
        claims = self.engine.claims()
"""

MUTANTS: Final = (
    Mutant(
        "1",
        "a take-over raises the epoch",
        KEEPER,
        "            ledger = found.taken_over()\n",
        "            ledger = found\n",
        KEEPER_TESTS,
    ),
    Mutant(
        "1",
        "ledger writes are compare-and-swap",
        STORED,
        '{"resourceVersion": resource_version, "managedFields": [{}]}',
        '{"managedFields": [{}]}',
        KEEPER_TESTS,
    ),
    Mutant(
        "1",
        "a take-over raises the epoch of each page",
        "webhook/controllers/ledger/raised_pages.py",
        "        version = await self._objects.patch("
        "kept.name, kept.resource_version, {ledger_text.META: meta}, None)\n"
        "        kept.resource_version, kept.meta = version, meta\n",
        "",
        PAGES_TESTS,
    ),
    Mutant(
        "1",
        "a page is listed before it is written",
        KEEPER,
        "        await self._write(INDEX, (), listed, texts)\n",
        "",
        PAGES_TESTS,
    ),
    Mutant(
        "1",
        "a page is known by its uid",
        PAGES,
        "        if page.uid != uid:\n",
        "        if False:\n",
        PAGES_TESTS,
    ),
    Mutant(
        "1",
        "entries on a page that is not listed show that the list is old",
        PAGES,
        "        if found[name].data.keys() - {text.META}:\n",
        "        if False:\n",
        PAGES_TESTS,
    ),
    Mutant(
        "1",
        "a page that somebody else wrote is looked at though we write nothing on it",
        KEEPER,
        " or read.get(name, 0) > kept.version]",
        "]",
        f"{UNIT}/controllers/ledger/test_paged_cycles.py",
    ),
    Mutant(
        "1",
        "an index says which write of each page was the last",
        WITNESS,
        "        others = self._seqs if name == INDEX else [INDEX, *list(self._fresh)[-BESIDE_MAX:]]\n",
        "        others = [INDEX, *list(self._fresh)[-BESIDE_MAX:]]\n",
        WITNESS_TESTS,
    ),
    Mutant(
        "1",
        "a page says which write of the index, and of pages written since, was the last",
        WITNESS,
        "        others = self._seqs if name == INDEX else [INDEX, *list(self._fresh)[-BESIDE_MAX:]]\n",
        "        others = self._seqs if name == INDEX else []\n",
        WITNESS_TESTS,
    ),
    Mutant(
        "1",
        "who takes over compares what objects say of each other",
        KEEPER,
        "        check({INDEX: before, **raised.read}, self._proved_seq())\n",
        "",
        WITNESS_TESTS,
    ),
    Mutant(
        "1",
        "jobs prove how far the ledger had come",
        "webhook/assembly/reconciler.py",
        "        proved_seq=lambda: rebuild.proved_seq(view),\n",
        "",
        WITNESS_TESTS,
    ),
    Mutant(
        "1",
        "a ledger that says nothing of what runs is not believed",
        RECOVERY,
        "        if not rebuild.unheld(view, ledger):\n",
        "        if True:\n",
        WITNESS_TESTS,
    ),
    Mutant(
        "1",
        "what runs is read again before a ledger is rebuilt for it",
        RECOVERY,
        "                await self._feeds.relist_all()\n                if unheld",
        "                if unheld",
        WITNESS_TESTS,
    ),
    Mutant(
        "1",
        "who takes over believes nothing older than it has read",
        "webhook/core/ledger/text.py",
        "        if ledger.version < self.newest:\n",
        "        if False:\n",
        WITNESS_TESTS,
    ),
    Mutant(
        "1",
        "a renewal says what was written since the one before",
        KEEPER,
        "        await self._settle(kept, {ledger_text.META: meta})\n",
        "        await self._settle(kept, {})\n",
        WITNESS_TESTS,
    ),
    *REBUILD_MUTANTS,
    Mutant(
        "2",
        "what takes is stored before anything is given",
        PAGES,
        "    return _rounds(taking, {page: uids for page, uids in giving.items() if uids})\n",
        "    return _rounds(everything)\n",
        PAGES_TESTS,
    ),
    Mutant(
        "2",
        "who is put is started once all of them are stored",
        PAGES,
        "    return max(found, default=0)\n",
        "    return 0\n",
        PAGES_TESTS,
    ),
    Mutant(
        "2",
        "nobody is started before that is stored",
        KEEPER,
        "        for number, each in enumerate(rounds):\n",
        "        on_put(ledger)\n        for number, each in enumerate(rounds):\n",
        PAGES_TESTS,
    ),
    Mutant(
        "2",
        "nobody is started on what a commit without pages gives back before that is stored",
        KEEPER,
        " if paged else len(rounds) - 1\n",
        "\n",
        PAGES_TESTS,
    ),
    Mutant(
        "2",
        "what is given is spent once that is stored",
        "webhook/controllers/loop/step_actions.py",
        "        if self.keeper.paged:\n",
        "        if False:\n",
        f"{UNIT}/controllers/ledger/test_paged_cycles.py",
    ),
    Mutant(
        "2",
        "a start waits for its reservation to be stored",
        RECONCILER,
        "        claims = self.engine.claims()\n",
        START_BEFORE_THE_LEDGER,
        RULES_TESTS,
    ),
    Mutant(
        "2",
        "a stopped gang's entry stays until its pods are gone",
        ASSESS,
        "    if pods_present:\n        return Step.DELETE_PODS if overdue else Step.NOTHING\n",
        "",
        ASSESS_TESTS,
    ),
    Mutant(
        "2",
        "what a controller does not stop is stopped by us",
        RECONCILER,
        "        overdue = voided and now - record.written_at >= OVERDUE_SECONDS\n",
        "        overdue = False\n",
        f"{UNIT}/controllers/gangs/test_failing_controllers.py",
    ),
    Mutant(
        "2",
        "the room that others were stopped for is kept when another leads",
        RECONCILER,
        "        self.engine.restore_claims(self._failed.without(self._keeper.ledger.claims))\n",
        "",
        RULES_TESTS,
    ),
    Mutant(
        "3",
        "an effect carries a resourceVersion",
        PATCHES,
        '        {"op": "replace", "path": "/metadata/resourceVersion", "value": str(record.resource_version)},\n',
        "",
        f"{UNIT}/jobs/patches/test_patches.py",
    ),
    Mutant(
        "3",
        "an effect carries a uid",
        PATCHES,
        '        {"op": "test", "path": "/metadata/uid", "value": record.uid},\n',
        "",
        f"{UNIT}/jobs/patches/test_patches.py",
    ),
    Mutant(
        "3",
        "lifting the gate of a pod carries a resourceVersion",
        "webhook/jobs/patches/pod.py",
        "        *preconditions(pod),\n",
        "",
        f"{UNIT}/jobs/plain_pods/test_pod_groups.py",
    ),
    Mutant(
        "3",
        "a stop moves the version also where it says what is stored already",
        "webhook/jobs/patches/job.py",
        "        marks[names.VOIDED] = str(record.resource_version)\n",
        "        pass\n",
        f"{UNIT}/jobs/patches/test_patches.py",
    ),
    Mutant(
        "3",
        "so does what sends a pod back",
        "webhook/jobs/patches/pod.py",
        ", names.VOIDED: str(pod.resource_version)}",
        "}",
        f"{UNIT}/jobs/plain_pods/test_pod_groups.py",
    ),
    Mutant(
        "3",
        "it was read before the ledger write that authorised the effect",
        RECONCILER,
        "ledger)) for job in batch.starts.values()]\n",
        "ledger)) for job in [self._view.jobs.get(job.uid, job) for job in batch.starts.values()]]\n",
        RULES_TESTS,
    ),
    Mutant(
        "3",
        "pods were read before the ledger write that authorised lifting their gates",
        RECONCILER,
        "for job, pods in batch.lifts.values()]\n",
        "for job, pods in [(j, self._view.fences.pods_of(j.namespace, j.uid)) for j, _ in batch.lifts.values()]]\n",
        RULES_TESTS,
    ),
    Mutant(
        "4",
        "a job still suspended is written before its entry is freed",
        ASSESS,
        "    if not voided:\n        return Step.VOID\n",
        "",
        ASSESS_TESTS,
    ),
    Mutant(
        "4",
        "a plain pod that waits is written before its gang's entry is freed",
        GATED_PODS,
        "        if any(pod.gated and pod.live and not (voided and (refused or told(pod))) for pod in pods):\n"
        "            return Step.VOID\n",
        "",
        GATED_PODS_TESTS,
    ),
    Mutant(
        "4",
        "a rebuild writes every waiting job first",
        RECOVERY,
        "            await self._void(suspects, view.ledger.epoch + 1)\n",
        "",
        RECOVERY_TESTS,
    ),
    Mutant(
        "5",
        "a start that is repeated is preceded by a conditional write of the ledger",
        RECONCILER,
        "            await self._keeper.commit(batch.put.values(), ",
        "            if not changed:\n"
        "                on_put(self._keeper.ledger)\n"
        "            else:\n"
        "                await self._keeper.commit(batch.put.values(), ",
        RULES_TESTS,
    ),
    Mutant(
        "5",
        "the objects are read before the ledger is taken over",
        RECONCILER,
        "        while not self._view.synced:\n            await asyncio.sleep(0.05)\n",
        "",
        RULES_TESTS,
    ),
    Mutant(
        "6",
        "a write of the ledger whose outcome is unknown is settled",
        FENCED,
        "goes through now, or it conflicts because the lost one did.\n                await asyncio.sleep(0.1)",
        "goes through now, or it conflicts because the lost one did.\n                break",
        KEEPER_TESTS,
    ),
    Mutant(
        "6",
        "a write is ours only if all is stored as it was sent",
        FENCED,
        "stored.data == kept.data_with(changes):\n",
        "stored.data.get(ledger_text.META) == kept.data_with(changes).get(ledger_text.META):\n",
        EDITED_TESTS,
    ),
    Mutant(
        "6",
        "a renewal is stored only if its lease is",
        FENCED,
        '(stored.lease or "") if kept is not self._index or stored.lease in leases else None\n',
        'stored.lease or ""\n',
        EDITED_TESTS,
    ),
    Mutant(
        "6",
        "who takes over compares what is stored of the index, too",
        FENCED,
        "        if not kept.known or stored.data",
        "        if self.ledger is None or stored.data",
        EDITED_TESTS,
    ),
    Mutant(
        "6",
        "where the ledger is doubted the index is written, too",
        KEEPER,
        "        if doubted:\n            await self.renew()\n",
        "",
        EDITED_TESTS,
    ),
    Mutant(
        "6",
        "a rebuild repeats a write of a job whose outcome is unknown",
        RECOVERY,
        "if not self._effects.settled(job.uid)}",
        "if False}",
        RECOVERY_TESTS,
    ),
    Mutant(
        "7",
        "the watchdog ends the process",
        "webhook/kube/watchdog.py",
        "        if self._wait_for_expiry():\n            self._on_expiry()",
        "        self._wait_for_expiry()",
        WATCHDOG_TESTS,
    ),
    Mutant(
        "7",
        "a write that comes too late is given up",
        FENCED,
        "            started = self._monotonic()\n            if self._elector.must_quit(started):",
        "            started = self._monotonic()\n            if False:",
        KEEPER_TESTS,
    ),
    Mutant(
        "7",
        "the watchdog is told of each renewal",
        "webhook/processes/reconciler.py",
        "        on_renewed=lambda deadline: watchdog.feed(deadline + HUNG_SECONDS),\n",
        "",
        f"{UNIT}/test_processes.py",
    ),
    Mutant(
        "7",
        "a commit or a take-over of many pages renews the lease",
        KEEPER,
        "                    async with asyncio.timeout_at(self._elector.quit_at):\n"
        "                        await self.renew()\n",
        "                    break\n",
        PAGES_TESTS,
    ),
    Mutant(
        "7",
        "a rebuild of many pages renews the lease",
        KEEPER,
        "        if self.renew_due:\n            await self.renew()\n",
        "        pass\n",
        PAGES_TESTS,
    ),
    Mutant(
        "7",
        "who takes over and cannot renew the lease gives up",
        KEEPER,
        "                    async with asyncio.timeout_at(self._elector.quit_at):\n",
        "                    async with asyncio.timeout_at(None):\n",
        f"{UNIT}/controllers/ledger/test_raised_pages.py",
    ),
    Mutant(
        "7",
        "a term is over when its lease ran out, whatever it waits for",
        TERMS,
        "            async with limit:\n                self._limit = limit\n",
        "            async with asyncio.timeout(None):\n",
        TERMS_TESTS,
    ),
    Mutant(
        "7",
        "each term of a process has a keeper of its own",
        TERMS,
        "            self.keeper, self._held = self._next(), False\n",
        "            self._held = False\n",
        TERMS_TESTS,
    ),
    Mutant(
        "7",
        "what a term has begun has ended before the next one begins",
        LEADERSHIP,
        "            await replica.end_term()\n",
        "            replica.leading = False\n",
        TERMS_TESTS,
    ),
    *RELEASE_MUTANTS,
    Mutant(
        "U",
        "a gang of a kind that cannot be read any more is given nothing",
        "webhook/cluster/waiting.py",
        "    unread = _unread(job, gang, view)\n",
        "    unread = None\n",
        "tests/simulation -k 'kinds and refused and later'",
    ),
    *CHILD_MUTANTS,
    *REQUEST_MUTANTS,
    *NODE_MUTANTS,
    *FLEET_MUTANTS,
    *FAILURE_MUTANTS,
    *NAME_MUTANTS,
    *BROUGHT_MUTANTS,
    *SWEEP_MUTANTS,
)
