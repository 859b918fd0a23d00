"""What a process concludes from the cluster as it sees it, in whichever order news arrive."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.fuzz.costs import counted
from tests.unit.jobs.records import waiting_job
from webhook.cluster.by_name import ByName
from webhook.cluster.lineage import Lineage
from webhook.cluster.nodes.occupancy import Occupancy
from webhook.cluster.nodes.settling import Held
from webhook.cluster.view import View
from webhook.core.ledger.record import Ledger, reserve
from webhook.core.model.gang import Gang, PodPrice, PodSet
from webhook.core.model.pods import PodRecord
from webhook.core.notation.names import GANG_LABEL
from webhook.core.quota.fence import Fence
from webhook.core.quota.fences import Fences
from webhook.jobs.reading.ended import Ended
from webhook.jobs.reading.record import Template

ONE = PodPrice({"cpu": 1000})
GANG = Gang("uid", "Job.batch", "ns", "train", "q", (PodSet("main", 3, ONE),))
RESERVED = reserve(GANG, "q", {"main": 3}, {}, epoch=1, now_seconds=1.0)
TWO_ENDED = waiting_job(GANG, suspended=False, ended={"main": Ended(2, 2)}, gives_back=True)
ON_NODE = PodRecord("pod", "ns", "pod", 1, ONE, node="node", phase="Running", owner_uid="owner")


def left_of(view: View) -> list[type]:
    """Return the parts of a view that have kept something of the pod."""
    assert view.nodes is not None
    kept = {
        ByName: vars(view.by_name) != vars(ByName()),
        Lineage: bool(view.lineage.controller_of("pod")),
        Fences: view.fences.pod("ns", "pod") is not None,
        Occupancy: view.nodes.capacity.bound("pod") is not None,
    }
    return [part for part, left in kept.items() if left]


@pytest.mark.parametrize("job_first", [True, False], ids=["the job is read first", "the ledger is read first"])
def test_room_of_pods_that_have_ended_is_free_before_their_gang_ends(job_first: bool) -> None:
    """Every process knows it, also those that run no engine: the webhook lets loose pods have it."""
    view = View()
    view.fences.put_fence(Fence("ns", "hard", {"pods": 3000}))
    if job_first:
        view.put_job(TWO_ENDED)
    view.set_ledger(Ledger(1, 1, {"uid": RESERVED}))
    if not job_first:
        view.put_job(TWO_ENDED)
    assert view.fences.pod_shortfall("ns", ONE, also=[ONE]) is None
    assert view.fences.pod_shortfall("ns", ONE, also=[ONE, ONE]) is not None
    view.set_ledger(Ledger(1, 2, {"uid": replace(RESERVED)}))
    assert view.fences.pod_shortfall("ns", ONE, also=[ONE]) is None


def test_what_a_job_gave_back_stays_so_when_it_is_deleted_from_above_its_pods() -> None:
    view = View()
    view.set_ledger(Ledger(1, 1, {"uid": RESERVED}))
    view.put_job(TWO_ENDED)
    view.put_pod(replace(ON_NODE, gang="uid", pod_set="main"))
    view.drop_job(TWO_ENDED)
    assert view.given_back(RESERVED) == {"main": 2}
    stopped = replace(RESERVED, stopping="Preempted")
    view.set_ledger(Ledger(1, 2, {"uid": stopped}))
    assert view.given_back(stopped) == {"main": 2}
    view.put_pod(replace(ON_NODE, uid="late", gang="uid", pod_set="main"))
    assert view.given_back(stopped) == {"main": 1}, "no room in which a pod is"
    smaller = stopped.without({"main": 1})
    view.set_ledger(Ledger(1, 3, {"uid": smaller}))
    for pod in ("pod", "late"):
        view.drop_pod("ns", pod)
    assert view.given_back(smaller) == {}, "its entry says by now that it holds less"
    view.set_ledger(Ledger(1, 4, {}))
    assert not view._left


def test_nothing_is_known_of_the_pods_of_an_adopted_job_that_is_gone() -> None:
    adopted = replace(RESERVED, adopted=True)
    view = View()
    view.set_ledger(Ledger(1, 1, {"uid": adopted}))
    view.put_job(TWO_ENDED)
    view.drop_job(TWO_ENDED)
    assert view.given_back(adopted) == {}


def test_a_job_that_changes_costs_nothing_for_the_pods_that_it_has() -> None:
    """Anybody may annotate their job again and again, and it may have thousands of pods."""
    view = View()
    view.put_controller("uid", "ns", "")
    for number in range(20_000):
        view.put_pod(PodRecord(f"pod-{number}", "ns", f"pod-{number}", 1, ONE, gang="uid", owner_uid="uid"))
    counted(lambda: view.put_controller("uid", "ns", ""))


def test_a_job_has_its_places_looked_at_again_when_it_asks_or_gives_back_something_else() -> None:
    """Its controller writes its status at each change of each pod."""
    nodes = Occupancy()
    view, running = View(nodes=nodes), replace(TWO_ENDED, ended={})
    view.put_job(running)
    view.set_ledger(Ledger(1, 1, {"uid": RESERVED}))
    nodes.settle((), {})
    nodes.settle([Held(each, {}, GANG) for each in nodes.unsettled()], {})
    view.put_job(replace(running, resource_version=2, active=3, ready=True))
    assert nodes.changes == 0
    wider = replace(GANG, pod_sets=(PodSet("main", 3, ONE, node_selector={"pool": "a"}),))
    for changed in (replace(TWO_ENDED, resource_version=3), replace(TWO_ENDED, resource_version=4, gang=wider)):
        view.put_job(changed)
        assert nodes.changes == 1
        nodes.settle([Held(each, {}, GANG) for each in nodes.unsettled()], {})


def test_pods_that_were_read_before_the_owner_of_their_controller_are_told_whose_they_are() -> None:
    view = View()
    view.put_pod(PodRecord("pod", "ns", "pod", 1, ONE, gang="uid", owner_uid="child"))
    view.put_controller("child", "ns", "")
    assert view.fences.live_pods("ns", "uid", "") == 1, "nobody saw the gang: it may be an orphan of it"
    view.put_controller("uid", "ns", "")
    assert view.fences.live_pods("ns", "uid", "") == 0


def test_a_pod_below_a_long_line_of_owners_that_are_gone_leaves_its_node() -> None:
    """Finalizers are taken off from the top, and the pod is deleted last."""
    view = View(nodes=Occupancy())
    view.put_controller("uid", "elsewhere", "")
    owners = [f"owner-{number}" for number in range(2_000)]
    for uid, owner in zip(owners, ["uid", *owners], strict=False):
        view.put_controller(uid, "ns", owner)
    view.put_pod(replace(ON_NODE, owner_uid=owners[-1]))
    for uid in owners:
        view.drop_controller(uid)
    view.drop_pod("ns", "pod")
    assert left_of(view) == []
    entry = replace(RESERVED, namespace="elsewhere", loose_pods=True)
    view.set_ledger(Ledger(1, 1, {"uid": entry}))
    assert view.present("elsewhere", "uid") == 0, "the gang that the topmost names can be asked"


@pytest.mark.parametrize("part", [ByName.drop, Lineage.drop_pod, Fences.drop_pod, Occupancy.drop_pod])
def test_each_part_of_the_view_forgets_a_pod_though_another_fails(
    part: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What has dropped the record does so once: nothing would ever take the pod off its node."""
    view = View(nodes=Occupancy())
    view.put_pod(replace(ON_NODE, named=("name",)))
    owner = next(each for each in (ByName, Lineage, Fences, Occupancy) if part in vars(each).values())
    monkeypatch.setattr(owner, part.__name__, lambda *_: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        view.drop_pod("ns", "pod")
    assert left_of(view) == [owner]


@pytest.mark.parametrize("part", [ByName, Lineage])
def test_so_does_each_part_an_object(part: type, monkeypatch: pytest.MonkeyPatch) -> None:
    view = View()
    view.set_ledger(Ledger(1, 1, {"uid": RESERVED}))
    view.put_controller("uid", "ns", "")
    view.note_made("uid", ("name",), running=True)
    monkeypatch.setattr(part, "drop", lambda *_: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        view.drop_controller("uid")
    assert view.is_deleted("uid")
    assert view.lineage.knows("uid") is (part is Lineage)


@pytest.mark.parametrize("claim", ["an owner", "a label"])
def test_what_is_in_another_namespace_holds_nothing_of_a_gang(claim: str) -> None:
    """Its owner, or its label, names the uid of the gang, which is gone: anybody may write that."""
    view, entry = View(), replace(RESERVED, adopted=True)
    view.set_ledger(Ledger(1, 1, {"uid": entry}))
    owner, made_for = ("uid", "") if claim == "an owner" else ("", "uid")
    for namespace in ("elsewhere", "ns"):
        uid = f"job-{namespace}"
        view.put_controller(uid, namespace, owner, made_for=made_for)
        view.put_controller(f"part-{namespace}", namespace, uid)
        view.put_pod(PodRecord(f"pod-{namespace}", namespace, "pod", 1, ONE, owner_uid=f"part-{namespace}"))
        view.note_made(uid, (), running=True)
    assert view.present("ns", "uid") == 2, "the job and its pod, of its own namespace alone"
    assert view.holder("ns", "part-ns") == "uid"
    assert view.holder("elsewhere", "part-elsewhere") == ""
    running = waiting_job(
        replace(GANG, uid="job-elsewhere", namespace="elsewhere"), suspended=False, marked=False, queue_label=None
    )
    assert view.left_by(replace(running, made_for="uid")) == "", "it needs a reservation of its own"


def test_what_names_a_queue_is_charged_there_unless_its_pods_bear_the_label_of_what_made_it() -> None:
    """Whatever else holds room above it counts none of its pods."""
    view = View()
    view.set_ledger(Ledger(1, 1, {"uid": RESERVED}))
    view.put_controller("orphan", "ns", "uid")
    view.put_controller("orphan", "ns", "")
    running = waiting_job(replace(GANG, uid="orphan"), suspended=False, queue_label="q")
    for mark, holder in (("uid", "uid"), ("another", "")):
        template = Template("main", "/spec/template", True, {GANG_LABEL: mark}, False, None, None)
        assert view.left_by(replace(running, made_for=mark, templates=(template,))) == holder
    assert view.left_by(running) == ""


@pytest.mark.parametrize("seconds", [RESERVED.since_seconds, RESERVED.since_seconds + 1])
@pytest.mark.parametrize("adopted", [False, True])
def test_what_was_there_when_a_gang_was_adopted_stays_charged_to_it_though_it_names_a_queue(
    seconds: float, *, adopted: bool
) -> None:
    """Nothing else without a mark runs by leave of that gang."""
    view = View()
    view.set_ledger(Ledger(1, 1, {"uid": replace(RESERVED, adopted=adopted)}))
    view.put_controller("orphan", "ns", "uid")
    view.put_controller("orphan", "ns", "")
    running = waiting_job(replace(GANG, uid="orphan"), suspended=False, marked=False, queue_label="q")
    running = replace(running, created_seconds=seconds)
    assert view.left_by(running) == ("uid" if adopted and seconds <= RESERVED.since_seconds else "")
    assert view.left_by(replace(running, queue_label=None)) == "uid"


def test_an_orphan_with_a_reservation_of_its_own_holds_no_room_of_the_gang_that_made_it() -> None:
    """Its old pods do, until they are gone."""
    view = View()
    view.set_ledger(Ledger(1, 1, {"uid": replace(RESERVED, adopted=True)}))
    for child in ("one", "two"):
        view.put_controller(child, "ns", "uid")
        view.put_controller(child, "ns", "")
        view.note_made(child, (), running=True)
    view.put_pod(PodRecord("old", "ns", "pod", 1, ONE, owner_uid="one"))
    view.put_pod(PodRecord("new", "ns", "pod", 1, ONE, gang="one", owner_uid="one"))
    assert view.present("ns", "uid") == 3
    one = replace(RESERVED, uid="one", name="one")
    view.set_ledger(Ledger(1, 2, {"uid": view.ledger.entries["uid"], "one": one}))
    assert view.present("ns", "uid") == 2, "the other one, and the old pod"
