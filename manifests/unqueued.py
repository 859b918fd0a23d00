"""Writes ``base/unqueued-policy.yaml``: who creates a job that names no queue, beside queues, is told so.

Nothing is refused. It is here and not in the webhook because its outage must not touch what did not opt in, and only
the API server knows without asking whether the namespace has queues: LocalQueues are the policy's parameters. What a
controller makes is not its author's oversight. Run ``python -m manifests.unqueued`` after changing the job kinds.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from manifests import cel, output
from manifests.policies import policy
from manifests.rules import UNQUEUED, job_rules, not_gated
from webhook.core.notation import names
from webhook.jobs.kinds.kind import JobKind

TARGET: Final = Path(__file__).parent / "base" / "unqueued-policy.yaml"


def documents(kinds: Sequence[JobKind]) -> list[dict[str, Any]]:
    """Return the policy and its binding. It is judged for each LocalQueue; the same words are shown once."""
    told, binding = policy(
        "ValidatingAdmissionPolicy",
        "tutti-unqueued",
        job_rules(cel.families(kinds), "CREATE"),
        constraints={"namespaceSelector": not_gated(), "objectSelector": UNQUEUED},
        failurePolicy="Ignore",
        paramKind={"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue"},
        matchConditions=[
            {"name": "made-by-no-controller", "expression": "object.metadata.?ownerReferences.orValue([]).size() == 0"},
        ],
        validations=[
            {
                "expression": "false",
                "messageExpression": "'this job names no queue and is charged to none; label it "
                f"{names.QUEUE_LABELS[0]} to have it wait in one: kubectl get localqueues -n ' + request.namespace",
            }
        ],
    )
    binding["spec"] |= {
        "validationActions": ["Warn"],
        "paramRef": {"selector": {}, "parameterNotFoundAction": "Allow"},
    }
    return [told, binding]


if __name__ == "__main__":
    sys.exit(output.run(documents, TARGET, "manifests.unqueued", __doc__))
