"""The rules of room on nodes: none is given twice, none forgotten, and nobody is kept out for what no node has."""

from typing import Final

from tests.mutants.mutant import UNIT, Mutant

OCCUPANCY: Final = "webhook/cluster/nodes/occupancy.py"
OCCUPANCY_TESTS: Final = f"{UNIT}/cluster/nodes"

NODE_MUTANTS: Final = (
    Mutant(
        "N",
        "a pod that is being deleted counts on its node",
        OCCUPANCY,
        "        if not pod.node or pod.terminal:\n",
        "        if not pod.node or pod.terminal or pod.terminating:\n",
        OCCUPANCY_TESTS,
    ),
    Mutant(
        "N",
        "what one start is given on nodes no other is given beside it",
        "webhook/core/nodes/capacity.py",
        "        self._add_all(gang, allotment, -1)\n",
        "",
        f"{UNIT}/core/nodes {UNIT}/core/placement {UNIT}/core/scheduler/test_nodes.py",
    ),
    Mutant(
        "N",
        "room on nodes is kept for who has others stopped",
        "webhook/core/scheduler/cycle.py",
        "        claims.keep_places(state, gang.uid, decision.places)\n",
        "",
        f"{UNIT}/core/scheduler/test_claims_on_nodes.py",
    ),
    Mutant(
        "N",
        "what is booked for who waits for nodes is kept from others",
        "webhook/core/scheduler/booked_nodes.py",
        "    nodes.claim(uid, claimed)\n",
        "",
        f"{UNIT}/core/scheduler/test_booked_nodes.py",
    ),
    Mutant(
        "N",
        "a head that lacks nodes keeps nobody from quota",
        "webhook/core/backfill/heads.py",
        "    return isinstance(eclass.barrier, Misplaced)\n",
        "    return False\n",
        f"{UNIT}/core/scheduler/test_booked_nodes.py",
    ),
    Mutant(
        "N",
        "who is larger than all nodes is in nobody's way",
        "webhook/core/scheduler/queueing_hints.py",
        "_is_beyond_nodes(state, eclass, decision) or not (short",
        "not (short",
        f"{UNIT}/core/scheduler/test_booked_nodes.py",
    ),
    Mutant(
        "N",
        "who has to be in a HyperNode is held to its nodes",
        "webhook/jobs/patches/pod.py",
        "        *(_held_to(nodes, waiting.affinity) if nodes else ()),\n",
        "",
        f"{UNIT}/jobs/plain_pods",
    ),
    Mutant(
        "N",
        "what leaves for a claim is kept for it, whoever else is booked to end there",
        "webhook/core/nodes/claimed.py",
        "        return (self.whole,) if claimed.booked else (self.firm, self.whole)\n",
        "        return (self.whole,)\n",
        f"{UNIT}/core/nodes",
    ),
    Mutant(
        "N",
        "a running gang grows no further than the nodes hold",
        "webhook/core/scheduler/growth.py",
        "            and not isinstance(self.places(old, larger), Misplaced)\n",
        "",
        f"{UNIT}/core/scheduler/test_growth.py",
    ),
    Mutant(
        "N",
        "room on nodes is kept for pods by which a running gang grew",
        "webhook/core/scheduler/state.py",
        "        self.nodes.allot_more(reservation.uid, more)\n",
        "",
        f"{UNIT}/core/scheduler/test_growth.py",
    ),
    Mutant(
        "N",
        "room on nodes is kept for gangs that another leader admitted",
        OCCUPANCY,
        "        settling = _Settling(",
        "        if known is None:\n            return _Settling(held, {})\n        settling = _Settling(",
        "tests/simulation -k 'few and nodes'",
    ),
    Mutant(
        "N",
        "what the ledger keeps for a gang is given to nobody who has lost a node",
        OCCUPANCY,
        "            self._displace(gang, name, shape, pods)\n",
        "            pass\n",
        OCCUPANCY_TESTS,
    ),
    Mutant(
        "N",
        "who may go elsewhere makes way for those who may not",
        OCCUPANCY,
        "            if shape.fits(self.capacity.spare(node)):\n                places",
        "            if False:\n                places",
        OCCUPANCY_TESTS,
    ),
    Mutant(
        "N",
        "what is placed again is written beside what is admitted",
        "webhook/controllers/loop/reconciler.py",
        "            self._gangs.write_moves(batch)\n",
        "",
        f"{UNIT}/controllers/loop/test_room_on_nodes.py",
    ),
    Mutant(
        "N",
        "pods of DaemonSets that a new node will get count before they come",
        OCCUPANCY,
        "        for node in self._expecting:\n",
        "        for node in ():\n",
        OCCUPANCY_TESTS,
    ),
    Mutant(
        "N",
        "a look at nodes that is put off sends nobody to other nodes, and stops nobody there",
        "webhook/core/assignment/decision.py",
        "if decision.fits or fence is not None or decision.postponed:\n",
        "if decision.fits or fence is not None:\n",
        f"{UNIT}/core/scheduler/test_node_turns.py",
    ),
)
