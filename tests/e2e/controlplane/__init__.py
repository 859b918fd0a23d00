"""A real Kubernetes control plane as plain processes on loopback: no Docker, no root.

etcd, kube-apiserver, kube-controller-manager, kube-scheduler, KWOK nodes with GPUs, the real JobSet controller and
training operator, and on demand the real cert-manager. Binaries come from ``$KUBEBUILDER_ASSETS`` or are built once
from the Go modules pinned in ``tests/e2e/binaries``.
"""
