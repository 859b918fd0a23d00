"""The policy webhook's question: what would this object break, for itself and for others."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.dialects.reading import cases, changed, summary
from webhook.dialects.compiler import PolicyCompiler, compile_policy, validate
from webhook.dialects.fragment import Fragment
from webhook.dialects.kueue import objects as kueue
from webhook.dialects.registry import RESOURCES, resource_of

RULES = cases("kueue_rules.yaml")["base"]
TREE = cases("elastic_quota_tree_rules.yaml")["base"]
ALL = [*RULES.values(), TREE]


def cohort(name: str, parent: str) -> dict[str, Any]:
    spec = {"parentName": parent}
    return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Cohort", "metadata": {"name": name}, "spec": spec}


def test_a_sound_object_beside_what_it_refers_to_is_fine() -> None:
    gpu = changed(RULES["ResourceFlavor"], {"metadata.name": "gpu"})
    assert validate(RULES["ClusterQueue"], [*ALL, gpu]) == ()


def test_a_reference_that_dangles_only_warns() -> None:
    found = [summary(problem) for problem in validate(RULES["ClusterQueue"], [])]
    assert found == [
        "warning /spec/resourceGroups/0/flavors/0/name",
        "warning /spec/resourceGroups/1/flavors/0/name",
    ]


def test_the_cohort_that_closes_a_cycle_only_warns_and_says_whom_it_stops() -> None:
    others = [cohort("a", "b"), changed(RULES["ClusterQueue"], {"spec.cohortName": "a", "spec.resourceGroups": []})]
    found = validate(cohort("b", "a"), others)
    assert [summary(problem) for problem in found] == [
        "warning Cohort a#/spec/parentName",
        "warning ClusterQueue research#/spec/cohortName",
        "warning /spec/parentName",
    ]
    assert "a -> b -> a" in found[0].why


def test_what_was_wrong_before_is_not_held_against_a_newcomer() -> None:
    broken = changed(RULES["ClusterQueue"], {"spec.stopPolicy": "Pause"})
    assert validate(RULES["WorkloadPriorityClass"], [broken]) == ()


def test_an_update_that_mends_an_object_is_let_through() -> None:
    broken = changed(RULES["ClusterQueue"], {"spec.stopPolicy": "Pause"})
    mended = changed(RULES["ClusterQueue"], {"spec.resourceGroups": []})
    assert validate(mended, [broken]) == ()


def test_a_name_that_is_taken_in_another_dialect_is_refused() -> None:
    volcano = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "research"}}
    found = validate(volcano, [RULES["ClusterQueue"], RULES["ResourceFlavor"]])
    assert "error /metadata/name" in [summary(problem) for problem in found]


def test_a_child_that_overdraws_its_volcano_parent_is_refused() -> None:
    def queue(name: str, **spec: Any) -> dict[str, Any]:
        group = "scheduling.volcano.sh/v1beta1"
        return {"apiVersion": group, "kind": "Queue", "metadata": {"name": name}, "spec": spec}

    others = [queue("eng", deserved={"cpu": 4}), queue("a", parent="eng", deserved={"cpu": 3})]
    assert validate(queue("b", parent="eng", deserved={"cpu": 1}), others) == ()
    found = [summary(problem) for problem in validate(queue("b", parent="eng", deserved={"cpu": 2}), others)]
    assert "error Queue eng#/spec/deserved/cpu" in found


def test_a_resource_quota_is_the_api_servers_business() -> None:
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": {"pods": "1"}}}
    assert validate(quota, ALL) == ()
    assert compile_policy([quota]).problems == ()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.sampled_from(["", "a", "1", "root"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["name", "cpu", "a/b"]), inner, max_size=3)
    ),
    max_leaves=6,
)


@settings(max_examples=300)
@given(st.data())
def test_no_object_however_malformed_raises(data: st.DataObject) -> None:
    volcano = {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "Queue",
        "metadata": {"name": "q"},
        "spec": {"parent": "root", "capability": {"cpu": 1}, "guarantee": {"resource": {"cpu": 1}}},
    }
    base = data.draw(st.sampled_from([*ALL, volcano]))
    path = data.draw(st.sampled_from(sorted(paths(base))))
    mangled = changed(base, {path: data.draw(JSON.filter(lambda value: value is not None))})
    policy = compile_policy([mangled, *ALL])
    assert all(problem.fix and problem.why for problem in policy.problems)
    validate(mangled, ALL)


def paths(value: Any, prefix: str = "") -> set[str]:
    """All dotted paths in an object, except into keys with dots."""
    result: set[str] = set()
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, member in members:
        if "." not in str(key):
            path = f"{prefix}.{key}" if prefix else str(key)
            result |= {path, *paths(member, path)}
    return result


@pytest.mark.parametrize("resource", RESOURCES, ids=lambda resource: resource.key)
def test_every_policy_resource_is_found_and_has_a_path(resource: Any) -> None:
    assert resource_of(resource.group, resource.kind) is resource
    path = resource.path(resource.versions[0])
    assert path.startswith("/apis/" if resource.group else "/api/v1/")
    assert path.endswith(f"/{resource.plural}")


LOCAL = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue"}


@given(st.sampled_from(ALL), st.sets(st.sampled_from(["one", "two", "three"])), st.booleans())
def test_what_a_change_does_not_concern_would_have_said_nothing(
    obj: dict[str, Any], names: set[str], dangling: bool
) -> None:
    """Each LocalQueue names the queue of the rules, or none that exists."""
    target = {"clusterQueue": "nowhere" if dangling else RULES["ClusterQueue"]["metadata"]["name"]}
    handles = [{**LOCAL, "metadata": {"name": name, "namespace": "team-a"}, "spec": target} for name in names]
    rest = [other for other in [*ALL, *handles] if other is not obj]
    before = set(compile_policy(rest).problems)
    added = {found.why for found in compile_policy([*rest, obj]).problems if found not in before}
    assert {found.why for found in validate(obj, [*ALL, *handles])} == added


def test_of_thousands_of_local_queues_none_is_read_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    compile_object = kueue.compile_object

    def counted(obj: Mapping[str, Any]) -> Fragment:
        read.append(obj["metadata"]["name"])
        return compile_object(obj)

    monkeypatch.setattr(kueue, "compile_object", counted)
    target = {"clusterQueue": RULES["ClusterQueue"]["metadata"]["name"]}
    handles = [{**LOCAL, "metadata": {"name": f"q-{n}", "namespace": "team-a"}, "spec": target} for n in range(1000)]
    validate(handles[0], [*RULES.values(), *handles])
    assert len(read) <= len(RULES) + 1
    compiler = PolicyCompiler()
    for _ in range(2):
        read.clear()
        validate(RULES["ClusterQueue"], [*RULES.values(), *handles], compiler)
    assert read == [RULES["ClusterQueue"]["metadata"]["name"]]
