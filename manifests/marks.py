"""Writes ``base/marks-policy.yaml``: who may move a waiting job before all others of its priority.

The right is the verb ``top`` on ``workloads`` of our read API, in the job's namespace: no object of ours is written for
it, and none of the cluster's own roles but cluster-admin has it. Run ``python -m manifests.marks`` after changing the job
kinds.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from manifests import cel, output
from manifests.policies import policy, variables
from manifests.registrations import job_rules
from webhook.core.notation import names
from webhook.jobs.kinds.kind import JobKind
from webhook.visibility.http.group import GROUP

TARGET: Final = Path(__file__).parent / "base" / "marks-policy.yaml"
_WRITTEN: Final = f"metadata.?annotations[?'{names.TOP}'].orValue('')"


def documents(kinds: Sequence[JobKind]) -> list[dict[str, Any]]:
    """Return the policy and its binding."""
    before = f"(oldObject == null ? '' : oldObject.{_WRITTEN})"
    asked = f"authorizer.group('{GROUP}').resource('workloads').namespace(request.namespace).name(object.metadata.name)"
    return policy(
        "ValidatingAdmissionPolicy",
        "tutti-top",
        job_rules(cel.families(kinds), "CREATE", "UPDATE"),
        matchConditions=[{"name": "moved", "expression": f"object.{_WRITTEN} != '' && object.{_WRITTEN} != {before}"}],
        variables=variables(may=f"{asked}.check('top').allowed()"),
        validations=[
            {
                "expression": "variables.may",
                "messageExpression": (
                    f"request.userInfo.username + ' may not move jobs to the top ({names.TOP}): it needs "
                    f"the verb top on workloads.{GROUP} in namespace ' + request.namespace"
                ),
                "reason": "Forbidden",
            }
        ],
    )


if __name__ == "__main__":
    sys.exit(output.run(documents, TARGET, "manifests.marks", __doc__))
