"""``tutti hub`` that is killed just before or just after one of its eight writes about a gang is sent.

Run ``python -m tests.e2e.controlplane.dying_hub STEP before|after CONFIG``. The process ends by SIGKILL, as a machine
that loses its power does; before it does nothing but ``tutti hub`` does.
"""

import os
import signal
import sys
from pathlib import Path
from typing import Any, Final

from webhook.core.fleet.dispatch import DispatchPhase
from webhook.core.notation import names
from webhook.kube.http import HttpApi
from webhook.processes import running
from webhook.processes.hub import serve_hub

STEPS: Final = ("offer", "create", "grant", "permit", "report", "recall", "delete", "prove")
WHEN: Final = ("before", "after")
_RECORDS: Final = {
    DispatchPhase.OFFERED: "offer",
    DispatchPhase.GRANTED: "grant",
    DispatchPhase.RECALLED: "recall",
    DispatchPhase.NOWHERE: "prove",
}


def step_of(method: str, path: str, body: bytes) -> str:
    """Return which of the steps a request of the hub is; nothing for any other."""
    if "/jobs" not in path:
        return ""
    if method in ("POST", "DELETE"):
        return "create" if method == "POST" else "delete"
    if path.endswith("/status"):
        return "report" if b'"Complete"' in body else ""
    if names.PERMIT.replace("/", "~1").encode() in body:
        return "permit"
    written = [step for phase, step in _RECORDS.items() if f'\\"phase\\":\\"{phase}\\"'.encode() in body]
    return written[0] if written else ""


def main(step: str, when: str, path: str) -> None:
    asked = HttpApi.request

    async def request(self: HttpApi, method: str, path: str, **how: Any) -> bytes:
        is_it = method != "GET" and step_of(method, path, how.get("body") or b"") == step
        if is_it and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        answer = await asked(self, method, path, **how)
        if is_it:
            os.kill(os.getpid(), signal.SIGKILL)
        return answer

    HttpApi.request = request  # type: ignore[method-assign,assignment]
    running.run(serve_hub, Path(path))


if __name__ == "__main__":
    assert sys.argv[1] in STEPS
    assert sys.argv[2] in WHEN
    main(*sys.argv[1:])
