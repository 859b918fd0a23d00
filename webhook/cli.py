"""The command ``tutti``. Heavy imports happen inside the commands, so that questions about files answer at once."""

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal

import typer

from webhook import __version__
from webhook.commands import completion as completing
from webhook.commands import completion_names
from webhook.errors import WRONG, TuttiError, Unavailable, WrongInput, WrongName

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Gang admission for Kubernetes: a gang of pods starts whole or not at all.",
    epilog="Exit status: 0 done, 1 could not be done, 2 wrong input, 130 interrupted.",
)
policy_app = typer.Typer(no_args_is_help=True, help="Work with queues and quota written in files.")
fleet_app = typer.Typer(no_args_is_help=True, help="Manage the members of a fleet's hub.")
_JOBS = "Jobs"
_INSTALLATION = "Queues and the installation"
_FILES = "Without a cluster"
_PROCESSES = "Processes, as the image runs them"

ConfigOption = Annotated[Path | None, typer.Option("--config", help="YAML file; see docs/configuration.md.")]
KubeconfigOption = Annotated[
    Path | None, typer.Option("--kubeconfig", help="Default: KUBECONFIG, else the pod's own, else ~/.kube/config.")
]
NamespaceOption = Annotated[
    str | None, typer.Option("--namespace", "-n", help="Default: the namespace of your context.")
]
OutputOption = Annotated[Literal["table", "yaml", "json"], typer.Option("--output", "-o", help="Output format.")]


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"tutti {__version__}")
        raise typer.Exit


VersionOption = Annotated[
    bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version and exit.")
]


@app.callback()
def _root(version: VersionOption = False) -> None:
    """Options that stand before a command."""


@app.command(rich_help_panel=_JOBS)
def explain(
    job: Annotated[
        str, typer.Argument(help="KIND/NAME or KIND NAME, for example job/train.", autocompletion=completion_names.jobs)
    ],
    name: Annotated[str | None, typer.Argument(help="The job's name, if not given as KIND/NAME.")] = None,
    namespace: NamespaceOption = None,
    kubeconfig: KubeconfigOption = None,
) -> None:
    """Say why a job waits: which queue or ResourceQuota, the numbers, who holds it, what would help.

    A PodGroup of plain pods goes by podgroup/NAME or pg/NAME, a pod by pod/NAME.

    Exits with 2 when Tutti knows nothing of that name.
    """
    from webhook.commands.show import gang  # noqa: PLC0415

    asyncio.run(gang.explain(job if name is None else f"{job}/{name}", namespace, kubeconfig))


Jobs = Annotated[
    list[str],
    typer.Argument(
        help="KIND/NAME, one or more, for example job/train; or KIND NAME...; with --selector one or more KIND.",
        autocompletion=completion_names.jobs,
    ),
]
SelectorOption = Annotated[
    str | None, typer.Option("--selector", "-l", help="Every job of these kinds that matches this label selector.")
]


def _add_owner_verb(verb: str, summary: str) -> None:
    @app.command(verb, help=summary, rich_help_panel=_JOBS)
    def _command(
        jobs: Jobs,
        selector: SelectorOption = None,
        namespace: NamespaceOption = None,
        kubeconfig: KubeconfigOption = None,
    ) -> None:
        from webhook.commands import owner_verbs  # noqa: PLC0415

        asyncio.run(owner_verbs.each(owner_verbs.VERBS[verb], jobs, selector, namespace, kubeconfig))


for _verb, _summary in {
    "hold": "Keep jobs from starting, or stop them whole, until they are released: they keep their place.",
    "release": "Put held jobs back in their queues.",
    "cancel": "Delete jobs and their pods, whether they wait or run.",
    "top": "Move waiting jobs to the front of their priority in their queue; needs the verb top on workloads.",
}.items():
    _add_owner_verb(_verb, _summary)


@app.command(rich_help_panel=_INSTALLATION)
def queues(
    name: Annotated[
        str | None,
        typer.Argument(
            help="Show only this queue, in full: limits, what it borrows and lends.",
            autocompletion=completion_names.queues,
        ),
    ] = None,
    sort: Annotated[
        Literal["waiting", "running", "name"] | None,
        typer.Option("--sort", help="Print a list sorted by this column instead of the tree."),
    ] = None,
    output: OutputOption = "table",
    namespace: NamespaceOption = None,
    kubeconfig: KubeconfigOption = None,
) -> None:
    """Show every queue and cohort, or one in full: quota, usage, who borrows, how many wait.

    If you may not see the whole cluster, you see the queues of your namespace.
    """
    from webhook.commands.show import queues as tree  # noqa: PLC0415

    asyncio.run(tree.show(kubeconfig, name=name, namespace=namespace, sort=sort, output=output))


@app.command(rich_help_panel=_FILES)
def demo(
    cluster: Annotated[
        Literal["simulated", "fleet", "real"] | None,
        typer.Option(help="simulated (the default), fleet (a hub, three members), or real (from a checkout)."),
    ] = None,
    kubeconfig: Annotated[
        Path | None, typer.Option(help="Use this cluster instead; Tutti must be installed there.")
    ] = None,
) -> None:
    """Show two teams sharing a cluster: gangs queue, borrow, start and finish before your eyes."""
    from webhook.laboratory.demo import run  # noqa: PLC0415

    raise typer.Exit(run(cluster, kubeconfig))


@app.command("try", rich_help_panel=_FILES)
def try_files(  # noqa: PLR0917
    files: Annotated[list[Path], typer.Argument(help="YAML or JSON files, directories, or - for standard input.")],
    output: OutputOption = "table",
    one_cycle: Annotated[
        bool, typer.Option("--one-cycle", help="Run one cycle instead of repeating until nothing changes.")
    ] = False,
    one_head_per_queue: Annotated[
        bool, typer.Option("--one-head-per-queue", help="A cycle considers only the head of each queue, as in Kueue.")
    ] = False,
    now: Annotated[
        str | None, typer.Option(help="The time to decide at: RFC 3339 or Unix seconds. Default: now.")
    ] = None,
    config: ConfigOption = None,
) -> None:
    """Dry run: which gangs of these files would start, which would be stopped, why the others would wait.

    Exits with 2 when something in the files is wrong, be it a warning.
    """
    from webhook.laboratory.dry_run import command  # noqa: PLC0415

    status = command.run(
        files,
        output=output,
        now=now,
        config=config,
        one_cycle=one_cycle,
        one_head_per_queue=one_head_per_queue,
    )
    raise typer.Exit(status)


@app.command(rich_help_panel=_FILES)
def simulate(  # noqa: PLR0917
    log: Annotated[Path, typer.Argument(help="Job log: SWF, Philly CSV or JSON, Helios CSV; gzipped or not.")],
    policy: Annotated[
        list[str] | None,
        typer.Option(help="A policy FILE, or private, borrow, reclaim, made from the log; repeat for more columns."),
    ] = None,
    by: Annotated[
        Literal["queue", "user"], typer.Option(help="What counts as a queue: the log's own queues, or each user.")
    ] = "queue",
    load: Annotated[
        float,
        typer.Option(
            min=1, max=100, help="How busy each queue of the built-in policies would be on its own, in percent."
        ),
    ] = 70,
    resume: Annotated[bool, typer.Option("--resume", help="Preempted jobs continue where they stopped.")] = False,
    nodes: Annotated[
        str | None,
        typer.Option(help="Simulate nodes: SIZE (enough for the quota), COUNTxSIZE (64x8), or a file of Nodes."),
    ] = None,
    print_policy: Annotated[bool, typer.Option("--print-policy", help="Only print the built-in policy.")] = False,
    output: OutputOption = "table",
    config: ConfigOption = None,
) -> None:
    """Replay a job log under policies, side by side: waits, slowdown, utilisation, preemptions, what sharing cost.

    Exits with 2 when something in the log or a policy is wrong.
    """
    from webhook.laboratory.replay import command  # noqa: PLC0415

    options = command.Options(by_user=by == "user", load=load / 100, resume=resume, nodes=nodes)
    if print_policy:
        command.print_policy(log, policy or [], options)
        return
    raise typer.Exit(command.run(log, policy or [], options, output=output, config=config))


@app.command(rich_help_panel=_FILES)
def completion(shell: Annotated[Literal["bash", "zsh", "fish"], typer.Argument(help="bash, zsh or fish.")]) -> None:
    """Print the completion script of a shell, for example: source <(tutti completion bash).

    Completing kubectl tutti needs only kubectl_complete-tutti on PATH; it is installed with tutti.
    """
    typer.echo(completing.script(shell), nl=False)


@app.command(rich_help_panel=_INSTALLATION)
def ledger(kubeconfig: KubeconfigOption = None) -> None:
    """Show the ledger: who leads, and every reservation."""
    from webhook.commands.show import ledger as stored  # noqa: PLC0415

    asyncio.run(stored.show(kubeconfig))


@app.command(rich_help_panel=_INSTALLATION)
def status(kubeconfig: KubeconfigOption = None) -> None:
    """Say whether Tutti is well: webhook, reconciler, who leads, certificates, ledger, queues. Exits with 1 if not."""
    from webhook.commands.show import health  # noqa: PLC0415

    raise typer.Exit(0 if asyncio.run(health.show(kubeconfig)) else 1)


@app.command(rich_help_panel=_INSTALLATION)
def uninstall(
    kubeconfig: KubeconfigOption = None,
    config: Annotated[Path | None, typer.Option(help="Default: the ConfigMap tutti-config of the cluster.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be written; change nothing.")] = False,
) -> None:
    """Restore every job to what its owner wrote. Run it after the webhook and the reconciler are gone."""
    from webhook.commands import uninstall as removal  # noqa: PLC0415

    asyncio.run(removal.give_back(kubeconfig, config, dry_run=dry_run))


@app.command("webhook", rich_help_panel=_PROCESSES)
def serve_webhook(config: ConfigOption = None) -> None:
    """Serve the admission webhook."""
    from webhook.processes import running  # noqa: PLC0415
    from webhook.processes import webhook as process  # noqa: PLC0415

    running.run(process.serve_webhook, config)


@app.command("reconciler", rich_help_panel=_PROCESSES)
def serve_reconciler(config: ConfigOption = None) -> None:
    """Run the reconciler: one replica leads, the others follow; all serve the read API."""
    from webhook.processes import reconciler as process  # noqa: PLC0415
    from webhook.processes import running  # noqa: PLC0415

    running.run(process.serve_reconciler, config)


@app.command("hub", rich_help_panel=_PROCESSES)
def serve_hub(config: ConfigOption = None) -> None:
    """Run a hub: place the jobs of its cluster whole in one of many clusters; see docs/fleet.md."""
    from webhook.processes import hub as process  # noqa: PLC0415
    from webhook.processes import running  # noqa: PLC0415

    running.run(process.serve_hub, config)


app.add_typer(policy_app, name="policy", rich_help_panel=_FILES)
app.add_typer(fleet_app, name="fleet", rich_help_panel=_INSTALLATION)


@fleet_app.command("lost")
def fleet_lost(
    member: Annotated[str, typer.Argument(help="The member that will not come back.")],
    kubeconfig: KubeconfigOption = None,
    cluster: Annotated[
        str, typer.Option("--cluster", help="The uid of its kube-system, if its name leads to another cluster by now.")
    ] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the offers; change nothing.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Even if no gang is in it, or no member has that name.")
    ] = False,
) -> None:
    """Declare a member lost: its gangs are offered elsewhere. Stop the member first, or a gang may run twice."""
    from webhook.commands import fleet  # noqa: PLC0415

    asyncio.run(fleet.lost(member, kubeconfig, cluster=cluster, dry_run=dry_run, force=force))


@fleet_app.command("found")
def fleet_found(
    member: Annotated[str, typer.Argument(help="The member that was declared lost.")],
    kubeconfig: KubeconfigOption = None,
) -> None:
    """Undo fleet lost: gangs that were offered elsewhere stay there, and hubs wait for the member again."""
    from webhook.commands import fleet  # noqa: PLC0415

    asyncio.run(fleet.found(member, kubeconfig))


@fleet_app.command("account")
def fleet_account(kubeconfig: KubeconfigOption = None) -> None:
    """Print a kubeconfig for the hub's account in a member. --kubeconfig: that of an administrator of the member."""
    from webhook.commands import fleet  # noqa: PLC0415

    asyncio.run(fleet.account(kubeconfig))


@policy_app.command("check")
def policy_check(
    files: Annotated[list[Path], typer.Argument(help="YAML or JSON files, directories, or - for standard input.")],
    config: ConfigOption = None,
) -> None:
    """Compile policy objects of any dialect; print the quota tree and what is wrong. Exits with 2 if anything is."""
    from webhook.config import load  # noqa: PLC0415
    from webhook.laboratory.dry_run import policy_check as check  # noqa: PLC0415

    raise typer.Exit(check.run(files, load(config)))


def main() -> None:
    """Run the command; errors that Tutti raises on purpose are one sentence on standard error.

    The exit status is WRONG for what was given, 1 for what could not be done.
    """
    if completing.ASKED_BY_SHELL in os.environ:
        completing.answer_shells()
    _told(lambda: app(prog_name="tutti"))


def amc() -> None:
    """Run ``kubectl amc``, which reads in the members of a fleet."""
    from webhook.commands import amc as reading  # noqa: PLC0415

    asked = reading.parsed(sys.argv[1:])
    _told(lambda: sys.exit(asyncio.run(reading.run(asked))))


def _told(command: Callable[[], object]) -> None:
    try:
        command()
    except (WrongInput, WrongName) as error:
        sys.stderr.write(f"tutti: {error}\n")
        sys.exit(WRONG)
    except Unavailable as error:
        from webhook.commands.terminal import unanswered  # noqa: PLC0415

        sys.stderr.write(f"tutti: {error if error.status else unanswered(error)}\n")
        sys.exit(1)
    except TuttiError as error:
        sys.stderr.write(f"tutti: {error}\n")
        sys.exit(1)


def complete_for_kubectl() -> None:
    """Answer kubectl, which asks with the words after ``kubectl tutti`` what may come next."""
    sys.stdout.write(completing.for_kubectl(app, sys.argv[1:]))
