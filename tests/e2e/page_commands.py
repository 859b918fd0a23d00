"""The commands that the pages name beside their blocks: as what each is run, or why it is not run there."""

import re
from typing import Final

from tests.e2e.controlplane.install import ROOT

PAGES: Final = ("administrator.md", "researcher.md", "on-call.md", "operating.md")
"""Those that tell people what to type; all but the last have blocks that are run line by line."""
_PROGRAMS: Final = r"(kubectl|tutti|helm|docker|make|pip|python|openssl|source)(\s|$)"

RUN: Final = {
    "kubectl -n tutti-system describe pods": "",
    "kubectl -n tutti-system get configmap NAME -o yaml": "kubectl -n tutti-system get configmap tutti-ledger -o yaml",
    "kubectl -n tutti-system get configmap tutti-ledger -o yaml": "",
    "kubectl -n tutti-system get jobs": "",
    "kubectl events --for job/train": "kubectl events -n team-vision --for job/training",
    "kubectl events -n NAMESPACE --for job/NAME": "kubectl events -n team-vision --for job/training",
    "kubectl get --raw /metrics | grep ^apiserver_current_inflight_requests": "",
    "kubectl get topologies": "",
    "kubectl get workloads -n team-vision -l run=night -o json": "",
    'kubectl patch job train --type merge -p \'{"spec":{"suspend":true}}\'': (
        'kubectl patch job training -n team-vision --type merge -p \'{"spec":{"suspend":true}}\''
    ),
    "kubectl tutti": "kubectl tutti queues",
    "source <(tutti completion bash)": "",
    "tutti --help": "",
    "tutti explain job/NAME -n NAMESPACE": "tutti explain job/training -n team-vision",
    "tutti explain job/train": "tutti explain job/training -n team-vision",
    "tutti hold job/train": "tutti hold job/training -n team-vision",
    "tutti policy check FILES": "tutti policy check examples/teams/quota.yaml",
    "tutti queues NAME": "tutti queues vision",
    "tutti release job/train": "tutti release job/training -n team-vision",
}
"""As a page has it, with names of its own, and as it is run here; empty where that is the same."""

_IMAGE: Final = "needs a container engine; image.sh runs what is in the image"
_DEPLOYMENTS: Final = "Tutti's processes run beside the control plane here, so there are no pods of Deployments"
_GLASS: Final = "tests/e2e/test_procedures.py"
_FLEET: Final = "tests/e2e/test_fleet.py"
NOT_RUN: Final = {
    "kubectl -n tutti-system create job tutti-certs-now --from=cronjob/tutti-certs": "tests/e2e/test_self_signed.py",
    "kubectl -n tutti-system describe certificate": "needs cert-manager; tests/e2e/test_issued_certificate.py",
    "kubectl -n tutti-system edit configmap tutti-config": "opens an editor; tests/unit/test_config.py",
    "kubectl -n tutti-system logs -l app.kubernetes.io/component=reconciler --prefix --tail=500": _DEPLOYMENTS,
    "kubectl -n tutti-system rollout restart deployment tutti-reconciler": _DEPLOYMENTS,
    "kubectl -n tutti-system scale deployment tutti-reconciler --replicas 0": _DEPLOYMENTS,
    "kubectl -n tutti-system scale deployment tutti-reconciler tutti-webhook --replicas 0": _DEPLOYMENTS,
    "kubectl amc get events": _FLEET,
    "kubectl amc get pod -M": _FLEET,
    "kubectl amc logs": _FLEET,
    "kubectl annotate KIND/NAME -n NAMESPACE KEY-": "tests/unit/fleet/test_refused_statuses.py",
    "kubectl annotate KIND/NAME -n NAMESPACE tutti.dev/dispatch-": "tests/unit/fleet/test_odd_answers.py",
    "kubectl apply --server-side -k": "tests/e2e/test_manifests.py, with each overlay",
    "kubectl apply --server-side -k manifests/crds": "tests/e2e/test_manifests.py",
    "kubectl delete --ignore-not-found -k manifests/overlays/self-signed": "tests/e2e/test_self_signed.py applies it",
    "kubectl delete crd": "deletes a kind; tests/unit/controllers/ledger/test_unread_at_recovery.py",
    "kubectl delete mutatingadmissionpolicybinding -l app.kubernetes.io/part-of=tutti": _GLASS,
    "kubectl delete validatingadmissionpolicybinding -l app.kubernetes.io/part-of=tutti": _GLASS,
    "kubectl delete validatingwebhookconfiguration,mutatingwebhookconfiguration tutti": _GLASS,
    **dict.fromkeys(
        (
            "kubectl cordon NODE",
            "kubectl get pods -A --field-selector spec.nodeName=NODE -L tutti.dev/gang",
            "tutti explain pod/NAME -n NAMESPACE",
            "tutti hold job/NAME -n NAMESPACE",
            "kubectl drain NODE --ignore-daemonsets --delete-emptydir-data",
            "kubectl uncordon NODE",
            "tutti release job/NAME -n NAMESPACE",
        ),
        "tests/e2e/test_procedures.py drains a node by them",
    ),
    "kubectl get queues -n kube-queue": "asks kube-queue, not Tutti",
    "kubectl wait namespace/NAME --for=jsonpath='{.metadata.labels.tutti\\.dev/gated}'=policy": (
        "needs an ElasticQuotaTree; tests/e2e/test_elastic_quota_tree.py has one"
    ),
    "make dist": "tests/unit/test_packaging.py",
    "python -m benchmarks.bench_rights": "takes minutes, and prints figures",
    "make image": _IMAGE,
    "make image BASE=python:3.12-slim@sha256:": _IMAGE,
    "make image-check": _IMAGE,
    "make up": "starts what these tests start: tests/e2e/controlplane/up.py",
    "pip install tutti-0.1.0-py3-none-any.whl": "tests/unit/test_packaging.py looks into the wheel",
    "kubectl -n tutti-system delete configmap tutti-ledger; "
    "kubectl -n tutti-system delete configmaps -l tutti.dev/ledger-page": "tests/unit/cluster/test_rebuild.py",
    "python -m certs rotate && python -m certs issue --secret | kubectl apply --server-side -f - "
    "&& python -m certs patch-ca": "tests/e2e/test_certificates.py, one after another",
    "python -m certs patch-ca": "tests/unit/certs/test_commands.py",
    "tutti cancel job/train": "as job/evaluation of the researcher's page",
    "tutti cancel jobs -l sweep=3": "as -l run=night of the researcher's page",
    "tutti fleet account --kubeconfig FILE": _FLEET,
    "tutti fleet lost NAME": "tests/unit/fleet/test_hub.py",
    "tutti fleet found NAME": "tests/unit/fleet/test_hub.py",
    "tutti fleet lost NAME --dry-run": _FLEET,
    "tutti hub": _FLEET,
    "tutti simulate": "tests/unit/laboratory/replay",
    "tutti top job/train": "tests/e2e/test_top.py",
    "tutti top job/train -n team-vision": "tests/e2e/test_top.py",
    "tutti uninstall": "tests/e2e/test_uninstall.py",
    "tutti uninstall --dry-run": "tests/e2e/test_uninstall.py",
}
"""Commands that would need what this cluster lacks, or would end it; a test that has such a cluster, or why there is
none.
"""


def blocks(page: str) -> list[str]:
    """Return the blocks of shell commands of a page that are run as they stand."""
    return re.findall(r"^```sh\n(.*?)^```$", _text(page), re.MULTILINE | re.DOTALL)


def block_with(page: str, command: str) -> list[str]:
    """Return the commands of the block of a page that has this one among them, without what is said beside them."""
    bodies = re.findall(r"^```\w*\n(.*?)^```$", _text(page), re.MULTILINE | re.DOTALL)
    found = ([line.partition("  #")[0].strip() for line in body.splitlines()] for body in bodies)
    return next(lines for lines in found if command in lines)


def others(page: str) -> set[str]:
    """Return the other commands of a page: in sentences, in tables, and in blocks that are not run as they stand."""
    fence = r"^```(\w*)\n(.*?)^```$"
    text = _text(page)
    plain = [body for kind, body in re.findall(fence, text, re.MULTILINE | re.DOTALL) if not kind]
    sentences = re.sub(fence, "", text, flags=re.MULTILINE | re.DOTALL)
    spans = [*re.findall(r"`([^`\n]+)`", sentences), *(line for body in plain for line in body.splitlines())]
    stripped = (span.partition("  #")[0].removesuffix("…").strip() for span in spans)
    return {span for span in stripped if re.match(_PROGRAMS, span)}


def _text(page: str) -> str:
    return (ROOT / "docs" / page).read_text()
