from tests.unit.server.reviews import (
    JOB_CONTROLLER,
    ask,
    job,
    pod,
    reservation,
    review,
    view,
    with_ledger,
)
from webhook.core import names
from webhook.server.gate import Gate


async def test_a_labelled_job_is_stored_suspended_and_marked() -> None:
    gate = Gate(view())
    answer = await ask(gate, "/mutate/jobs", review(job()))
    stored = answer.applied(job())
    assert stored["spec"]["suspend"] is True
    assert stored["spec"]["template"]["metadata"]["labels"][names.GANG_LABEL] == names.GANG_PENDING
    again = await ask(gate, "/mutate/jobs", review(stored))
    assert again.patch == []
    stored["metadata"]["uid"] = "job-1"
    valid = await ask(gate, "/validate/jobs", review(stored))
    assert valid.allowed, valid.message
    print(valid.warnings)


async def test_an_admitted_gangs_pod_passes() -> None:
    gate = Gate(with_ledger(view(), reservation()))
    answer = await ask(gate, "/validate/pods", review(pod(gang="job-1", version="1.1"), user=JOB_CONTROLLER))
    assert answer.allowed, answer.message
