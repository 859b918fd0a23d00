"""kubectl for tests: the pinned one, as a given user, with text in and text out; plain reads take a shorter way."""

import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import yaml

from tests.e2e.direct import Direct, NotPlain, Refused

Found = TypeVar("Found")


class KubectlError(AssertionError):
    """kubectl failed; the message is what it printed on standard error."""

    def __init__(self, command: list[str], stderr: str) -> None:
        super().__init__(f"kubectl {' '.join(command)}\n{stderr.strip()}")
        self.stderr = stderr


class Kubectl:
    """Calls kubectl as one user, in one namespace unless told otherwise.

    ``warnings`` holds what the last call printed on standard error although it succeeded: admission warnings.
    """

    def __init__(
        self, program: Path, kubeconfig: Path, namespace: str = "default", direct: Direct | None = None
    ) -> None:
        self.program = program
        self.kubeconfig = kubeconfig
        self.namespace = namespace
        self.warnings = ""
        self._direct = direct or Direct(kubeconfig)

    def __call__(self, *arguments: str, stdin: str | None = None, timeout_seconds: float = 60) -> str:
        """Return what kubectl prints; raises KubectlError with its stderr when it fails."""
        command = [str(self.program), f"--kubeconfig={self.kubeconfig}", f"--namespace={self.namespace}", *arguments]
        done = subprocess.run(
            command, input=stdin, capture_output=True, text=True, timeout=timeout_seconds, check=False
        )
        if done.returncode:
            raise KubectlError(list(arguments), done.stderr)
        self.warnings = done.stderr
        return done.stdout

    def in_namespace(self, namespace: str) -> "Kubectl":
        """Return the same user's kubectl in another namespace."""
        return Kubectl(self.program, self.kubeconfig, namespace, self._direct)

    def apply(self, manifest: str | dict[str, Any], *flags: str) -> str:
        """Apply YAML text or one object."""
        return self("apply", "-f", "-", *flags, stdin=_text(manifest))

    def create(self, manifest: str | dict[str, Any], *flags: str) -> str:
        """Create what YAML text or one object says; unlike apply it fails when something exists."""
        return self("create", "-f", "-", *flags, stdin=_text(manifest))

    def set_up(self, *objects: dict[str, Any]) -> None:
        """Apply what a test needs before it begins, in this order."""
        for item in objects:
            try:
                self._direct.apply(item, self.namespace)
            except (Refused, NotPlain):
                self.apply(item)

    def clear(self, kind: str, *names: str) -> None:
        """Delete what a test leaves, as :meth:`delete` does."""
        for name in names:
            try:
                self._direct.delete(kind, self.namespace, name)
            except Refused as error:
                raise KubectlError(["delete", kind, name], str(error)) from error
            except NotPlain:
                self.delete(kind, name)

    def warned(self, item: dict[str, Any]) -> str:
        """Return the warnings that creating an object would bring; raises KubectlError when it is refused."""
        try:
            return "\n".join(self._direct.warnings(item, self.namespace))
        except (Refused, NotPlain):
            self.create(item, "--dry-run=server")
            return self.warnings

    def patch(self, kind: str, name: str, patch: dict[str, Any], *flags: str) -> str:
        """Send a JSON merge patch."""
        return self("patch", kind, name, "--type=merge", f"--patch={json.dumps(patch)}", *flags)

    def delete(self, kind: str, *names: str) -> str:
        """Delete objects without waiting for them to be gone; those that are gone already are fine."""
        return self("delete", kind, *names, "--wait=false", "--ignore-not-found")

    def get(self, kind: str, name: str) -> dict[str, Any]:
        """Return one object; raises KubectlError when it is not there."""
        command = ["get", kind, name, "-o", "json"]
        try:
            return self._direct.get(kind, self.namespace, name)
        except Refused as error:
            raise KubectlError(command, str(error)) from error
        except NotPlain:
            found: dict[str, Any] = json.loads(self(*command))
            return found

    def items(self, kind: str, selector: str = "", fields: str = "") -> list[dict[str, Any]]:
        """Return all objects of a kind in the namespace, or those that a label selector and a field selector pick."""
        try:
            return self._direct.items(kind, self.namespace, selector, fields)
        except (Refused, NotPlain):
            picked = (f"--selector={selector}", f"--field-selector={fields}")
            found: list[dict[str, Any]] = json.loads(self("get", kind, "-o", "json", *picked))["items"]
            return found

    def pods(self, selector: str = "", phase: str = "") -> list[dict[str, Any]]:
        """Return the namespace's pods that are not being deleted, or those in one phase."""
        return [
            pod
            for pod in self.items("pods", selector)
            if "deletionTimestamp" not in pod["metadata"] and phase in ("", pod["status"].get("phase"))
        ]

    def refused(self, *arguments: str, stdin: str | None = None) -> str:
        """Run a command that must fail, and return the message that its user sees."""
        try:
            printed = self(*arguments, stdin=stdin)
        except KubectlError as error:
            return error.stderr
        raise AssertionError(f"kubectl {' '.join(arguments)} succeeded but must be refused:\n{printed}")

    def may(self, verb: str, resource: str, group: str) -> bool:
        """Return what :meth:`can` does, by a shorter way."""
        try:
            return self._direct.may(verb, resource, group, self.namespace)
        except (Refused, NotPlain):
            return self.can(verb, f"{resource}.{group}")

    def can(self, verb: str, resource: str) -> bool:
        """Whether RBAC lets this user do that here."""
        try:
            return self("auth", "can-i", verb, resource).strip() == "yes"
        except KubectlError:
            return False


def wait_until(
    predicate: Callable[[], Found], timeout_seconds: float = 60, what: str = "", poll_seconds: float = 0.2
) -> Found:
    """Return the first true value of ``predicate``; an assertion that fails inside it means "not yet".

    Raises AssertionError when the time is up, with ``what`` and the last failure.
    """
    deadline = time.monotonic() + timeout_seconds
    last: object = None
    while True:
        try:
            found = predicate()
            if found:
                return found
            last = found
        except AssertionError as error:
            last = error
        if time.monotonic() > deadline:
            raise AssertionError(f"{what or 'condition'}: not within {timeout_seconds:g} s; last seen: {last}")
        time.sleep(poll_seconds)


def stays(predicate: Callable[[], object], seconds: float, what: str = "", poll_seconds: float = 0.2) -> None:
    """Assert that ``predicate`` is true now and at every look for so long."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = predicate()
        assert found, f"{what or 'condition'}: no longer holds ({found!r})"
        time.sleep(poll_seconds)


def condition(item: dict[str, Any], kind: str) -> str:
    """Return the status of an object's condition: ``True``, ``False``, ``Unknown``, or nothing when it has none."""
    found = [entry["status"] for entry in item.get("status", {}).get("conditions") or [] if entry["type"] == kind]
    return str(found[0]) if found else ""


def _text(manifest: str | dict[str, Any]) -> str:
    return manifest if isinstance(manifest, str) else yaml.safe_dump(manifest)
