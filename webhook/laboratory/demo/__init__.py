"""``tutti demo``: two teams share 16 GPUs, and their gangs queue, borrow, start whole and finish before your eyes.

Read in this order: ``stages`` (the cluster it plays on), ``processes`` (Tutti's own, as in production), ``watching``
(what is seen of it, through the API alone), ``play`` (what the teams do), ``screen`` and ``summary`` (how it is told).
``fleet`` is a story of its own.
"""

import asyncio
import signal
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Literal, NoReturn

from webhook import logs
from webhook.core.notation.problem import Problem
from webhook.errors import WrongInput

INTERRUPTED = 130
"""Exit status after Ctrl-C, as shells have it."""


Stage = Literal["simulated", "fleet", "real"]


def run(cluster: Stage | None, kubeconfig: Path | None) -> int:
    """Play on a simulated cluster, on the ``real`` control plane of a checkout, or on the cluster of ``kubeconfig``.

    ``fleet`` is another story, on a simulated hub and its members.

    Returns the exit status: 0 when every gang finished whole. Whatever happens, nothing is left behind. Raises
    WrongInput where both are given, and for an unusable kubeconfig; ApiError where the cluster refuses.
    """
    if cluster is not None and kubeconfig is not None:
        fix = "give --cluster or --kubeconfig"
        raise WrongInput((Problem("--cluster", cluster, "is another cluster than that of --kubeconfig", fix),))
    from webhook.laboratory.demo import fleet, stages  # noqa: PLC0415 - so that a wrong argument is answered at once

    logs.configure("error", console=True)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    try:
        if cluster == "fleet":
            return asyncio.run(fleet.play())
        if kubeconfig is None and cluster != "real":
            return asyncio.run(stages.on_simulated())
        held: AbstractContextManager[Path] = nullcontext(kubeconfig) if kubeconfig else stages.real_control_plane()
        with held as reached:
            return asyncio.run(stages.on_given(reached))
    except KeyboardInterrupt:
        sys.stderr.write("\ninterrupted; nothing is left behind\n")
        return INTERRUPTED


def _interrupt(number: int, frame: object) -> NoReturn:
    raise KeyboardInterrupt
