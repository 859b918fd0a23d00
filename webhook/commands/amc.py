"""``kubectl amc get|describe|logs``: what runs in the members, read from where the fleet's hub is.

ACK One's plug-in of that name, as its pages use it: ``-m MEMBER`` asks one member and ``-M`` every one. It runs kubectl
with the kubeconfigs that the hub has of its members, so it shows whatever kubectl does, with the rights of the hub's
account there and nothing else. Whoever may read the hub's Secret may use it. It only reads; change jobs in the hub.
"""

import argparse
import asyncio
import re
import sys
import tempfile
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from webhook.commands import members, terminal
from webhook.commands.show.reading import namespace_of
from webhook.core.notation import names
from webhook.errors import TuttiError, WrongName

_VERBS: Final = ("get", "describe", "logs")
_PODS: Final = ("pod", "pods", "po")
_ANSWER_SECONDS: Final = 10
_ORIGIN: Final = names.ORIGIN_LABEL.rpartition("/")[2].upper()
"""The column in which kubectl shows the label that a hub puts on its copies."""
_CELL: Final = re.compile(r"\S+(?: \S+)*")
_NOT_THERE: Final = "(NotFound)"
_ONE_ONLY: Final = re.compile(r"-o(?!=?wide$)|--output(?!=wide$)|-w$|--watch|--no-headers|-f$|--filename")


@dataclass(frozen=True, slots=True)
class Asked:
    """What somebody asked: kubectl's own words, and where they go."""

    verb: str
    words: tuple[str, ...]
    member: str
    """Empty: every member."""
    namespace: str
    kubeconfig: Path | None = None
    """Of the hub."""


def parsed(arguments: Sequence[str]) -> Asked:
    """Return what was asked; ends the process with 2 where it is no question, and with 0 after a question for help."""
    usage = "kubectl amc get|describe|logs (-M | -m MEMBER) [-n NAMESPACE] [kubectl's own arguments]"
    parser = argparse.ArgumentParser("kubectl amc", usage, allow_abbrev=False)
    parser.description = "Read objects, or logs of pods, in the members of a fleet, from its hub."
    parser.add_argument("verb", choices=_VERBS, help="it only reads: jobs are changed in the hub")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("-M", "--all-members", action="store_true", help="in every member")
    where.add_argument("-m", "--member", default="", help="in one member")
    parser.add_argument("-n", "--namespace", default="", help="default: the namespace of your context")
    parser.add_argument("--kubeconfig", type=Path, help="of the hub; default: KUBECONFIG, else ~/.kube/config")
    known, words = parser.parse_known_args(arguments)
    if not words:
        parser.error(f"say what to {known.verb}, for example pod")
    if not known.all_members and not known.member:
        parser.error("-m needs the name of a member")
    if known.all_members and known.verb == "get" and (bad := _for_one(words)):
        parser.error(f"{bad} works with one member: write -m MEMBER instead of -M")
    return Asked(known.verb, tuple(words), known.member, known.namespace, known.kubeconfig)


async def run(asked: Asked) -> int:
    """Answer on standard output; return the exit status. Raises ApiError, TuttiError, WrongName."""
    async with terminal.cluster(asked.kubeconfig) as api:
        usable, unusable = await members.kubeconfigs(api)
    if asked.member in unusable:
        raise TuttiError(f"{asked.member}: {unusable[asked.member]}")
    if asked.member and asked.member not in usable:
        raise WrongName(f"{asked.member!r} is not a member; the hub has {', '.join(sorted(usable | unusable))}")
    chosen = {name: usable[name] for name in ([asked.member] if asked.member else sorted(usable))}
    status = await _asked(asked, chosen) if chosen else 0
    return status if asked.member else max(status, _told(unusable))


async def _asked(asked: Asked, chosen: Mapping[str, str]) -> int:
    words = [asked.verb, *asked.words, f"--namespace={namespace_of(asked.namespace, asked.kubeconfig)}"]
    if asked.verb == "get" and not _for_one(asked.words):
        return await _get(words, asked.words[0], chosen)
    return await _in_turn(words, chosen)


def _for_one(words: Sequence[str]) -> str:
    """Return the first of kubectl's words whose answer cannot be put together with others in a table."""
    pairs = zip(words, [*words[1:], ""], strict=True)
    return next((word for word, after in pairs if _ONE_ONLY.match(word) and (word, after) != ("-o", "wide")), "")


async def _get(words: Sequence[str], what: str, members: Mapping[str, str]) -> int:
    """Print one table of all members."""
    pods = what.partition("/")[0].partition(".")[0] in _PODS
    labels = () if pods else (f"--label-columns={names.ORIGIN_LABEL}",)
    asked = [*words, *labels, f"--request-timeout={_ANSWER_SECONDS}s"]
    answers = await asyncio.gather(*(_captured(kubeconfig, asked) for kubeconfig in members.values()))
    said = dict(zip(members, answers, strict=True))
    rows = [row for member, (_, out, _) in said.items() for each in out.split("\n\n") for row in rows_of(each, member)]
    # Of several kinds kubectl prints a table each, with their names before those of the objects.
    kinds: dict[str, list[dict[str, str]]] = {}
    for row in rows:
        kinds.setdefault(row.get("NAME", "").rpartition("/")[0], []).append(row)
    sys.stdout.write("\n".join("".join(f"{line}\n" for line in table(each)) for each in kinds.values()))
    failed = {member: error for member, (status, _, error) in said.items() if status}
    return _told(failed if not rows else _but_not_there(failed), quiet="" if rows else said[next(iter(said))][2])


def rows_of(printed: str, member: str) -> list[dict[str, str]]:
    """Return the rows of a table as kubectl prints it, by column, with the member that they are of."""
    lines = printed.splitlines()
    if not lines:
        return []
    heads = [(found.start(), found[0]) for found in _CELL.finditer(lines[0])]
    ends = [start for start, _ in heads[1:]] + [None]
    rows: list[dict[str, str]] = []
    for line in lines[1:]:
        cells = {head: line[start:end].strip() for (start, head), end in zip(heads, ends, strict=True)}
        row: dict[str, str] = {}
        for head, cell in cells.items():
            if head == _ORIGIN:
                row["ADOPTION"] = "Y" if cell else "N"
            else:
                row[head] = cell
            if head == "NAME":
                row["CLUSTER"] = member
        rows.append(row)
    return rows


def table(rows: Sequence[Mapping[str, str]]) -> list[str]:
    """Return rows as lines, with every column that one of them has."""
    columns = list(dict.fromkeys(head for row in rows for head in row))
    if "ADOPTION" in columns:
        columns.remove("ADOPTION")
        columns.append("ADOPTION")
    cells = [columns, *([row.get(head, "") for head in columns] for row in rows)]
    widths = [max(len(line[at]) for line in cells) for at in range(len(columns))]
    lines = ("   ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in cells)
    return [line.rstrip() for line in lines] if rows else []


async def _in_turn(words: Sequence[str], members: Mapping[str, str]) -> int:
    """Let kubectl print by itself, of one member after another: what is in one of them is not in the others."""
    failed: dict[str, str] = {}
    for member, kubeconfig in members.items():
        async with _kubectl(kubeconfig, words) as process:
            error = b"" if process.stderr is None else await process.stderr.read()
            if await process.wait():
                failed[member] = error.decode(errors="replace")
            else:
                sys.stderr.write(error.decode(errors="replace"))
    return _told(failed if len(failed) == len(members) else _but_not_there(failed))


def _but_not_there(failed: Mapping[str, str]) -> dict[str, str]:
    return {member: error for member, error in failed.items() if _NOT_THERE not in error}


def _told(failed: Mapping[str, str], quiet: str = "") -> int:
    """Say on standard error what members could not; return the exit status."""
    if quiet and not failed:
        sys.stderr.write(quiet)
    for member, error in failed.items():
        sys.stderr.write(f"{member}: {error.strip()}\n")
    return 1 if failed else 0


async def _captured(kubeconfig: str, words: Iterable[str]) -> tuple[int, str, str]:
    async with _kubectl(kubeconfig, words, stdout=asyncio.subprocess.PIPE) as process:
        out, error = await process.communicate()
    return process.returncode or 0, out.decode(errors="replace"), error.decode(errors="replace")


@asynccontextmanager
async def _kubectl(
    kubeconfig: str, words: Iterable[str], stdout: int | None = None
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Start kubectl with credentials in a file that nobody else may read and that is gone when it has ended."""
    with tempfile.NamedTemporaryFile("w", prefix="tutti-amc-") as file:
        file.write(kubeconfig)
        file.flush()
        try:
            process = await asyncio.create_subprocess_exec(
                "kubectl", f"--kubeconfig={file.name}", *words, stdout=stdout, stderr=asyncio.subprocess.PIPE
            )
        except FileNotFoundError:
            raise TuttiError("kubectl is not on PATH") from None
        yield process
