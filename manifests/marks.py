"""Writes ``base/marks-policy.yaml``: marks on a job that only some may write.

The annotation by which a waiting job moves before all others of its priority: the right is the verb ``top`` on
``workloads`` of our read API, in the job's namespace. No object of ours is written for it, and none of the cluster's
own roles but cluster-admin has it.

Finalizer ``orphan``: the garbage collector, which may delete anything, leaves the pods of what bears it. Kubernetes
itself writes it while it deletes, and asks no policy then. Whoever may delete nodes may write it.

They share a policy, and in it one condition: for each policy whose conditions it looks at, the API server makes a copy
of both objects. Run ``python -m manifests.marks`` after changing the job kinds.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from manifests import cel, output
from manifests.policies import policy, variables
from manifests.rules import BY_NO_DRAINER, job_rules
from webhook.core.notation import names
from webhook.jobs.kinds.kind import JobKind
from webhook.visibility.http.group import GROUP

TARGET: Final = Path(__file__).parent / "base" / "marks-policy.yaml"
_WRITTEN: Final = f"metadata.?annotations[?'{names.TOP}'].orValue('')"
_BEFORE: Final = f"(oldObject == null ? '' : oldObject.{_WRITTEN})"
_MOVED: Final = f"object.{_WRITTEN} != '' && object.{_WRITTEN} != {_BEFORE}"
_FINALIZED: Final = (
    "'orphan' in object.metadata.?finalizers.orValue([])\n"
    "&& (oldObject == null || !('orphan' in oldObject.metadata.?finalizers.orValue([])))\n"
    f"&& {BY_NO_DRAINER}"
)


def documents(kinds: Sequence[JobKind]) -> list[dict[str, Any]]:
    """Return the policy and its binding."""
    asked = f"authorizer.group('{GROUP}').resource('workloads').namespace(request.namespace).name(object.metadata.name)"
    return policy(
        "ValidatingAdmissionPolicy",
        "tutti-marks",
        job_rules(cel.families(kinds), "CREATE", "UPDATE"),
        matchConditions=[{"name": "newly-marked", "expression": f"{_MOVED}\n|| {_FINALIZED}\n"}],
        variables=variables(moved=_MOVED, finalized=_FINALIZED, may=f"{asked}.check('top').allowed()"),
        validations=[
            {
                "expression": "!variables.moved || variables.may",
                "messageExpression": (
                    f"request.userInfo.username + ' may not move jobs to the top ({names.TOP}): it needs "
                    f"the verb top on workloads.{GROUP} in namespace ' + request.namespace"
                ),
                "reason": "Forbidden",
            },
            {
                "expression": "!variables.finalized",
                "message": (
                    "finalizer orphan would leave pods behind that hold quota and that nobody could stop; leave it out"
                ),
            },
        ],
    )


if __name__ == "__main__":
    sys.exit(output.run(documents, TARGET, "manifests.marks", __doc__))
