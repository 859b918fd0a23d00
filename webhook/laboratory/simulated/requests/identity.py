"""Who asks: users, service accounts and their groups, and the context of one request."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, Final

from webhook.laboratory.simulated.requests.refusals import Json

_ACCOUNT_PREFIX: Final = "system:serviceaccount:"


@dataclass(frozen=True)
class User:
    """One caller, as admission reviews name it."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def named(cls, name: str, *groups: str) -> "User":
        """Return the user of that name with the groups that a real API server adds to it."""
        given = list(groups)
        if name.startswith(_ACCOUNT_PREFIX):
            namespace = name.removeprefix(_ACCOUNT_PREFIX).partition(":")[0]
            given += ["system:serviceaccounts", f"system:serviceaccounts:{namespace}"]
        elif name.startswith("system:node:"):
            given.append("system:nodes")
        return cls(name, (*given, "system:authenticated"))

    @classmethod
    def service_account(cls, namespace: str, name: str) -> "User":
        """Return a service account."""
        return cls.named(f"{_ACCOUNT_PREFIX}{namespace}:{name}")

    @cached_property
    def info(self) -> Json:
        """The ``userInfo`` of an admission review; not to be changed."""
        shown: dict[str, Any] = {"username": self.name, "uid": self.uid, "groups": list(self.groups)}
        if self.extra:
            shown["extra"] = {key: list(values) for key, values in self.extra.items()}
        return {key: value for key, value in shown.items() if value}


ADMIN: Final = User.named("kubernetes-admin", "system:masters")
JOB_CONTROLLER: Final = User.service_account("kube-system", "job-controller")
JOBSET_CONTROLLER: Final = User.service_account("jobset-system", "jobset-controller-manager")
TRAINING_OPERATOR: Final = User.service_account("kubeflow", "training-operator")
SCHEDULER: Final = User.named("system:kube-scheduler")
GARBAGE_COLLECTOR: Final = User.service_account("kube-system", "generic-garbage-collector")
NAMESPACE_CONTROLLER: Final = User.service_account("kube-system", "namespace-controller")
QUOTA_CONTROLLER: Final = User.service_account("kube-system", "resourcequota-controller")


@lru_cache(maxsize=1024)
def kubelet(node: str) -> User:
    """Return the identity of a node's kubelet."""
    return User.named(f"system:node:{node}")


@dataclass(slots=True)
class Call:
    """One request's caller and options, and the warnings that its answer will carry."""

    user: User = ADMIN
    dry_run: bool = False
    warnings: list[str] = field(default_factory=list)
