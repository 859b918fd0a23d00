#!/usr/bin/env bash
# The end-to-end tests on a kind cluster: real images, cert-manager, Tutti from manifests/overlays/cert-manager.
# Needs docker, kind, kubectl and Go. The cluster is deleted at the end; KEEP=1 leaves it.
#
# Everything of ours and of other projects runs as pods on kind's own node. That node is cordoned afterwards, so that the
# tests' pods go to KWOK nodes with GPUs, as on the loopback control plane; KWOK runs beside, as a process. Tutti's own
# pods are held to kind's node, cordoned or not: tests restart them, and on a KWOK node they would only seem to run.
set -euo pipefail
cd "$(dirname "$0")/../.."

name=${KIND_CLUSTER:-tutti-e2e}
image=${KIND_IMAGE:-}
python=${PYTHON:-.venv/bin/python}
run=$(mktemp -d)
export KUBECONFIG=$run/kubeconfig
kwok_pid=

clean_up() {
  [[ -z $kwok_pid ]] || kill "$kwok_pid" 2>/dev/null || true
  if [[ -z ${KEEP:-} ]]; then
    kind delete cluster --name "$name" >/dev/null 2>&1 || true
    rm -rf "$run"
  else
    echo "left running: export KUBECONFIG=$KUBECONFIG"
  fi
}
trap clean_up EXIT

# The versions are those of the loopback control plane.
pinned() { awk -v module="$2" '$1 == module { print $2 }' "tests/e2e/binaries/$1/go.mod"; }
certmanager=$(pinned cert-manager github.com/cert-manager/cert-manager)
jobset=$(pinned jobset sigs.k8s.io/jobset)
training=$(pinned training-operator github.com/kubeflow/training-operator)

echo "creating cluster $name"
kind create cluster --name "$name" ${image:+--image "$image"} --wait 120s

echo "installing cert-manager $certmanager, JobSet $jobset, the training operator $training"
kubectl apply --server-side -f "https://github.com/cert-manager/cert-manager/releases/download/$certmanager/cert-manager.yaml"
kubectl apply --server-side -f "https://github.com/kubernetes-sigs/jobset/releases/download/$jobset/manifests.yaml"
kubectl apply --server-side -k "github.com/kubeflow/training-operator.git/manifests/overlays/standalone?ref=$training"
for namespace in cert-manager jobset-system kubeflow; do
  kubectl -n "$namespace" wait deployment --all --for=condition=Available --timeout=300s
done

echo "building and installing Tutti"
docker build -q -t tutti:0.1.0 .
kind load docker-image --name "$name" tutti:0.1.0
# CRDs have to be served before objects of theirs are applied, and cert-manager's webhook has to answer: try again.
for attempt in 1 2 3 4 5 6; do
  kubectl apply --server-side -k manifests/overlays/cert-manager && break
  [[ $attempt != 6 ]] || exit 1
  sleep 10
done
for deployment in tutti-webhook tutti-reconciler; do
  kubectl -n tutti-system patch deployment "$deployment" --patch '
    spec:
      template:
        spec:
          nodeSelector: {node-role.kubernetes.io/control-plane: ""}
          tolerations: [{key: node.kubernetes.io/unschedulable, operator: Exists, effect: NoSchedule}]'
  kubectl -n tutti-system rollout status deployment "$deployment" --timeout=180s
done

echo "adding simulated nodes"
"$python" -c 'from tests.e2e.controlplane.nodes import kwok_configuration; print(kwok_configuration())' >"$run/kwok.yaml"
kwok=$("$python" -c 'from tests.e2e.controlplane.binaries import find; print(find("kwok"))' | tail -n 1)
"$kwok" --kubeconfig="$KUBECONFIG" --config="$run/kwok.yaml" --node-lease-duration-seconds=40 \
  --manage-nodes-with-label-selector=node.kubernetes.io/instance-type=simulated >"$run/kwok.log" 2>&1 &
kwok_pid=$!
"$python" - <<'PYTHON' | kubectl create -f -
import json
from tests.e2e.controlplane.nodes import node
print("\n".join(json.dumps(node(f"simulated-{number}", 8)) for number in range(4)))
PYTHON
kubectl wait node -l node.kubernetes.io/instance-type=simulated --for=condition=Ready --timeout=60s
kubectl cordon "$name-control-plane"

# shellcheck disable=SC2086  # several flags
"$python" -m pytest -q tests/e2e --override-ini addopts="-ra --strict-markers" ${E2EFLAGS:-}
