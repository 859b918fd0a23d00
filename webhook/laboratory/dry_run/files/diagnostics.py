"""What is wrong with an object of a file, as a diagnostic: where, which value, why, and what to do."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from webhook.core.model.policy import Diagnostic

_PROBLEM: Final = re.compile(
    r"(?:pod set (?P<set>\S+): )?(?P<path>(?:annotation |label )?[\w.\[\]/-]+): (?P<rest>.*)", re.DOTALL
)


def label(obj: Mapping[str, Any]) -> str:
    """Return ``Kind namespace/name`` of an object."""
    metadata = obj["metadata"]
    namespace = metadata.get("namespace")
    return f"{obj['kind']} {namespace}/{metadata.get('name')}" if namespace else f"{obj['kind']} {metadata.get('name')}"


def within(name: str, problem: Diagnostic) -> Diagnostic:
    """Return what is wrong at a place inside the object ``name``."""
    return replace(problem, path=f"{name}#{problem.path}")


def diagnostic(obj: Mapping[str, Any], problem: str) -> Diagnostic:
    """Return what a reader of jobs or pods said (``path: value: message; fix``) about ``obj``."""
    message, _, fix = problem.rpartition("; ")
    path, value = label(obj), ""
    found = _PROBLEM.fullmatch(message)
    if found is not None:
        inside = found["path"] if found["set"] is None else f"pod set {found['set']}: {found['path']}"
        path, message = f"{path}#{inside}", found["rest"]
        value, colon, rest = message.partition(": ")
        value, message = (_plain(value), rest) if colon else ("", message)
    return Diagnostic(path, value, message or problem, fix)


def _plain(value: str) -> str:
    """Return what a message shows of a value as other diagnostics show it: text without quotes."""
    if value == "None":
        return "absent"
    return value[1:-1] if len(value) > 1 and value[0] == value[-1] == "'" else value
