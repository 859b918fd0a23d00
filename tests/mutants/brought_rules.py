"""What must hold of what a hub brings and places by an annotation, as the fleet's simulation sees it."""

from typing import Final

from tests.mutants.mutant import Mutant

DEPENDENCY: Final = "webhook/fleet/jobs/dependencies/dependency.py"
BRINGING: Final = "webhook/fleet/jobs/dependencies/bringing.py"
PUTTING: Final = "webhook/fleet/jobs/dependencies/holding.py"
BROUGHT: Final = "tests/simulation/fleet -k refer_to"
PLACED: Final = "tests/simulation/fleet -k annotation"

BROUGHT_MUTANTS: Final = (
    Mutant(
        "P1",
        "what the hub has is in the member before the permit",
        BRINGING,
        "            return (*said, *await bringing.all(optional))\n",
        "            return tuple(said)\n",
        BROUGHT,
    ),
    Mutant(
        "P1",
        "what others have brought is kept for each copy that needs it",
        DEPENDENCY,
        "    if not owned:\n",
        "    if not owners:\n",
        BROUGHT,
    ),
    Mutant(
        "P6",
        "an object without the label of this hub is read only",
        PUTTING,
        '            elif not is_from(hub, there):\n                return _GOES if another_hub(hub, there) else ""\n',
        "            elif not is_from(hub, there):\n"
        '                patch = [{"op": "add", "path": "/metadata/labels", "value": {}}]\n'
        "                where = dependency.path(namespace)\n"
        '                await member.write("PATCH", where, orjson.dumps(patch), JSON_PATCH)\n'
        '                return ""\n',
        BROUGHT,
    ),
    Mutant(
        "P6",
        "what is brought is written in the namespace of the job",
        BRINGING,
        "made(dependency, found, self._namespace, self._fleet.uid, self._owner)",
        'made(dependency, found, "default", self._fleet.uid, self._owner)',
        BROUGHT,
    ),
    Mutant(
        "P6",
        "a hub reads in the namespace of the job",
        BRINGING,
        'self._fleet.api.request("GET", dependency.path(self._namespace), query=answers.ONE)',
        'self._fleet.api.request("GET", dependency.path("default"), query=answers.ONE)',
        BROUGHT,
    ),
    Mutant(
        "P6",
        "what is immutable in a member stays as it is",
        DEPENDENCY,
        '    if there.get("immutable") is True:\n',
        "    if False:\n",
        "tests/unit/fleet/jobs/dependencies/test_dependencies.py -k nobody_can_change",
    ),
    Mutant(
        "P6",
        "what is brought belongs to the copy, not to a job that its cluster has not",
        BRINGING,
        'job["metadata"]["name"], dispatch.copy_uid)',
        'job["metadata"]["name"], job["metadata"]["uid"])',
        BROUGHT,
    ),
    Mutant(
        "P6",
        "one more copy takes what is brought from no other",
        DEPENDENCY,
        '("/metadata/ownerReferences/-", owner) if owners else ("/metadata/ownerReferences", [owner])',
        '("/metadata/ownerReferences", [owner])',
        BROUGHT,
    ),
    Mutant(
        "P6",
        "nothing keeps what is brought when its last copy goes",
        DEPENDENCY,
        '            "ownerReferences": [dict(owner)],\n',
        '            "ownerReferences": [dict(owner)],\n            "finalizers": [names.DISPATCH],\n',
        BROUGHT,
    ),
    Mutant(
        "P6",
        "a hub remembers no namespace for which it has brought something",
        "webhook/fleet/jobs/fleet.py",
        "field(default_factory=WeakValueDictionary)",
        "field(default_factory=dict)",
        BROUGHT,
    ),
    Mutant(
        "P6",
        "what a hub brings it only reads at home",
        BRINGING,
        "            raw = await self._fleet.api.request(",
        "            marked, where = {names.ORIGIN_LABEL: self._fleet.uid}, dependency.path(self._namespace)\n"
        '            body, how = orjson.dumps({"metadata": {"labels": marked}}), "application/merge-patch+json"\n'
        '            await self._fleet.api.request("PATCH", where, body=body, content_type=how)\n'
        "            raw = await self._fleet.api.request(",
        BROUGHT,
    ),
    Mutant(
        "P6",
        "an annotation by which a hub places a job is changed by nobody",
        "webhook/server/jobs/changes.py",
        "OWN_ANNOTATIONS.union(SIZING_ANNOTATIONS)",
        "OWN_ANNOTATIONS.union(SIZING_ANNOTATIONS) - {names.MANAGED_BY}",
        PLACED,
    ),
    Mutant(
        "P1",
        "a pod whose gang runs in a member is refused in the hub",
        "webhook/server/pods/gang_pods.py",
        "    refused = _placed_elsewhere(rules.view, reservation) if rules.in_hub else None\n",
        "    refused = None\n",
        PLACED,
    ),
)
