"""Policy from a ConfigMap: every document counts, and what cannot be read is named and left out."""

from webhook.dialects.compiler import compile_policy
from webhook.dialects.config_map import LENGTH_MAX, objects_of

SOUND = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: gpu}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: research}
spec:
  namespaceSelector: {}
  resourceGroups:
    - coveredResources: [nvidia.com/gpu]
      flavors: [{name: gpu, resources: [{name: nvidia.com/gpu, nominalQuota: 4.8}]}]
---
"""
LOCAL = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: gpus, namespace: team}
spec: {clusterQueue: research}
"""


def test_documents_of_all_entries_are_policy_objects() -> None:
    objects, problems = objects_of({"data": {"b.yaml": LOCAL, "a.yaml": SOUND}})
    policy = compile_policy(objects)
    assert problems == policy.problems == ()
    assert [obj["kind"] for obj in objects] == ["ResourceFlavor", "ClusterQueue", "LocalQueue"]
    assert policy.queue_of("team", "gpus") == "research"
    assert policy.queues["research"].resource_groups[0].flavors[0].quotas["nvidia.com/gpu"].nominal == 4800


def test_an_entry_that_is_not_yaml_is_left_out_with_its_line() -> None:
    objects, problems = objects_of({"data": {"bad": "a: [1,\nb: }", "good": SOUND}})
    assert len(objects) == 2
    assert [(problem.path, problem.why) for problem in problems] == [
        ("/data/bad", "is not YAML: line 2, column 4: did not find expected node content")
    ]


def test_a_document_that_is_no_object_is_named() -> None:
    objects, problems = objects_of({"data": {"list": "- a\n- b\n---\n" + LOCAL}})
    assert len(objects) == 1
    assert [problem.path for problem in problems] == ["/data/list#0"]


def test_a_text_that_is_too_long_is_named_and_counts_all_the_same() -> None:
    filling = LENGTH_MAX - len(SOUND) - len(LOCAL)
    assert objects_of({"data": {"a": SOUND, "b": LOCAL, "c": "#" * filling}})[1] == ()
    objects, problems = objects_of({"data": {"a": SOUND, "b": LOCAL, "c": "#" * (filling + 1)}})
    assert len(objects) == 3
    assert [problem.path for problem in problems] == ["/data"]


def test_tags_that_would_run_code_are_not_yaml_here() -> None:
    objects, problems = objects_of({"data": {"evil": "!!python/object/apply:os.system ['true']"}})
    assert (objects, len(problems)) == ((), 1)


def test_an_empty_config_map_is_no_policy() -> None:
    assert objects_of({}) == ((), ())
    assert objects_of({"data": {"empty": "", "comment": "# nothing\n"}}) == ((), ())


def test_entries_stand_for_no_more_together_than_one_may() -> None:
    bomb = "[" + "a," * 60_000 + "]"
    objects, problems = objects_of({"data": {"a": SOUND, "b": bomb, "c": bomb, "d": bomb}})
    assert len(objects) == 2
    assert [problem.path for problem in problems if "stands for more than" in str(problem)] == ["/data/c", "/data/d"]
