"""A manifest that is applied again takes nothing of ours away, wherever it replaces a list as a whole."""

import copy

import pytest

from tests.unit.jobs.objects_of_kinds import NAMES, apply, kind_of, load, record_of
from tests.unit.jobs.patches.test_patches import REQUEUE, held, start
from webhook.core.notation import names
from webhook.jobs.patches import job as patches
from webhook.jobs.patches.kept_marks import with_kept_marks
from webhook.untyped import editing, paths


def applied_again(name, stored):
    """What is to be stored where all that the manifest says takes the place of what was there."""
    kind = kind_of(stored)
    spec = editing.put({"spec": load(name)["spec"]}, kind.suspend, paths.find(stored, kind.suspend))["spec"]
    return {**stored, "spec": spec}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("make", [held, lambda name: start(held(name), flavor_name="big")], ids=["waiting", "running"])
def test_a_manifest_applied_again_changes_nothing(name, make):
    stored = make(name)
    again = applied_again(name, stored)
    assert again != stored
    assert with_kept_marks(kind_of(stored), again, stored) == stored
    assert with_kept_marks(kind_of(stored), stored, stored) is stored


def ray_cluster():
    return held("raycluster")


def groups(obj):
    return {each["groupName"]: each["template"]["metadata"]["labels"] for each in obj["spec"]["workerGroupSpecs"]}


def test_a_pod_set_that_is_new_is_marked_as_the_others():
    stored = ray_cluster()
    again = applied_again("raycluster", stored)
    again["spec"]["workerGroupSpecs"][1]["groupName"] = "many"
    kept = with_kept_marks(kind_of(stored), again, stored)
    assert groups(kept)["many"] == {names.GANG_LABEL: names.GANG_PENDING, names.POD_SET_LABEL: "many"}
    assert groups(kept)["Gpu"] == groups(stored)["Gpu"]


def test_what_somebody_writes_instead_is_left_for_validation_to_refuse():
    stored = ray_cluster()
    forged = copy.deepcopy(stored)
    forged["spec"]["workerGroupSpecs"][0]["template"]["metadata"]["labels"][names.GANG_LABEL] = "another"
    assert with_kept_marks(kind_of(stored), forged, stored) is forged


def test_what_never_bore_a_mark_gets_none():
    plain = load("raycluster")
    assert with_kept_marks(kind_of(plain), plain, copy.deepcopy(plain)) is plain


def test_an_owners_own_node_labels_and_tolerations_go_before_what_a_start_injected():
    stored = start(held("job"), flavor_name="big")
    again = applied_again("job", stored)
    template = again["spec"]["template"]["spec"]
    template["nodeSelector"] = {"disk": "nvme"}
    template["tolerations"] = [{"key": "mine", "operator": "Exists"}]
    kept = with_kept_marks(kind_of(stored), again, stored)["spec"]["template"]["spec"]
    assert kept["nodeSelector"] == {"disk": "nvme", "pool/kind": "big"}
    assert [each["key"] for each in kept["tolerations"]] == ["mine", "big"]


@pytest.mark.parametrize("theirs", [[], ["mine"], ["mine", "big", "late"]], ids=["none", "theirs", "more behind ours"])
def test_tolerations_that_a_start_injected_stay_the_last_ones_though_all_labels_are_there(theirs):
    """A stop takes so many away from the end: they were the owner's own where these had taken the place of all."""
    stored = start(held("job"), flavor_name="big")
    spec = stored["spec"]["template"]["spec"]
    known = {each["key"]: each for each in spec["tolerations"]}
    changed = copy.deepcopy(stored)
    written = [known.get(key, {"key": key, "operator": "Exists"}) for key in theirs]
    changed["spec"]["template"]["spec"]["tolerations"] = written
    kept = with_kept_marks(kind_of(stored), changed, stored)["spec"]["template"]["spec"]
    assert [each["key"] for each in kept["tolerations"]] == [*(key for key in theirs if key != "big"), "big"]
    running = {**changed, "spec": {**changed["spec"], "template": {**changed["spec"]["template"], "spec": kept}}}
    stopped = apply(running, patches.stop(record_of(running), REQUEUE))
    restored = apply(stopped, patches.restore(record_of(stopped)))["spec"]["template"]["spec"]
    assert [each["key"] for each in restored.get("tolerations", [])] == [key for key in theirs if key != "big"]
