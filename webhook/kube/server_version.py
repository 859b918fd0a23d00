"""Which release of Kubernetes the API server is, said in the log at start.

An old release silently drops or freezes what a newer one does not. So the log, where an operator looks first, says once
what is known about the release.
"""

import re
from typing import Final

import orjson
import structlog

from webhook.errors import ApiError
from webhook.kube.api import Api

log = structlog.get_logger(__name__)

OLDEST: Final = (1, 30)
"""The first release that serves the API versions of the manifests: v1 of ValidatingAdmissionPolicy."""
TRIED: Final = ((1, 33), (1, 36))
"""The releases between which the end-to-end tests were run."""


async def log_server_version(api: Api) -> None:
    """Log the release of the API server, and warn of one that is too old or was never tried; never fails."""
    try:
        version = str(orjson.loads(await api.request("GET", "/version"))["gitVersion"])
    except (ApiError, ValueError, KeyError, TypeError) as error:
        log.warning("kubernetes.release_unknown", error=str(error))
        return
    log.info("kubernetes.release", version=version)
    problem = problem_of(version)
    if problem:
        log.warning("kubernetes.release_untried", version=version, problem=problem)


def problem_of(version: str) -> str:
    """Say what is wrong with a release, such as ``v1.29.3-gke.100``; nothing when it was tried."""
    found = re.match(r"v?(\d+)\.(\d+)", version)
    if found is None:
        return ""
    release = (int(found[1]), int(found[2]))
    if release < OLDEST:
        return f"Tutti needs Kubernetes {_text(OLDEST)} or newer: its installation is not served whole here"
    if release < TRIED[0]:
        return f"Tutti was tried on Kubernetes {_text(TRIED[0])} to {_text(TRIED[1])}"
    return ""


def _text(release: tuple[int, int]) -> str:
    return ".".join(map(str, release))
