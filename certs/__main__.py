"""``python -m certs``: issue, rotate, look at and announce Tutti's certificates."""

import asyncio
import base64
import sys
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, TypeVar

import typer
import yaml

from certs import cluster, store
from certs.authority import DAY_SECONDS, Pair, service_names
from certs.rotation import Material, Terms, advance, why_leaf_is_due, with_new_authority
from webhook.clock import SystemClock
from webhook.core.notation.names import SYSTEM_NAMESPACE
from webhook.errors import TuttiError, in_words
from webhook.kube.api import Api

Result = TypeVar("Result")

app = typer.Typer(no_args_is_help=True, add_completion=False, help=__doc__, pretty_exceptions_enable=False)

Directory = Annotated[Path, typer.Option("--out", help="Directory of ca.crt, tls.crt and tls.key; swapped as a whole.")]
AuthorityDirectory = Annotated[
    Path | None,
    typer.Option("--authority", help="Directory of the authorities and their keys; OUT.authority if not given."),
]
Namespace = Annotated[str, typer.Option(help="Namespace of Tutti's Services.")]
Names = Annotated[list[str] | None, typer.Option("--name", help="Further host name or address; may be repeated.")]
LeafDays = Annotated[
    float, typer.Option(help="Life of the leaf in days; it is renewed in the last third, at most 30 days.")
]
Kubeconfig = Annotated[Path | None, typer.Option(help="Cluster to talk to; the pod's service account if not given.")]

OUT = Path("build/certs")


def terms_for(namespace: str, names: Sequence[str] = (), leaf_days: float = 90) -> Terms:
    """Return the usual terms for the Services of ``namespace`` and further host names or addresses."""
    return Terms(names=service_names(namespace, tuple(names)), leaf_seconds=leaf_days * DAY_SECONDS)


def issue_directory(
    out: Path, authority: Path | None, terms: Terms, now_seconds: float, *, new_authority: bool = False
) -> Material:
    """Do what is due at ``now_seconds`` in the directories and return what is now in use.

    Raises ValueError when a directory holds something unreadable, OSError when it cannot be written.
    """
    authority = authority or beside(out)
    stored = store.load_material(out, authority)
    if new_authority:
        stored = with_new_authority(stored, terms, now_seconds)
    material = advance(stored, terms, now_seconds)
    if material != stored or new_authority:
        store.save_material(material, out, authority)
    return material


def beside(out: Path) -> Path:
    """Return where authorities are kept unless told: next to ``out``, never inside what is mounted."""
    return out.with_name(out.name + ".authority")


def names_kept(out: Path, authority: Path | None, namespace: str) -> list[str]:
    """Return the further names of the leaf that is there: what was asked for once holds until asked otherwise."""
    leaf = store.load_material(out, authority or beside(out)).leaf
    return [] if leaf is None else [name for name in leaf.names if name not in service_names(namespace)]


@app.command()
def issue(
    *,
    out: Directory = OUT,
    authority: AuthorityDirectory = None,
    namespace: Namespace = SYSTEM_NAMESPACE,
    name: Names = None,
    leaf_days: LeafDays = 90,
    secret: Annotated[bool, typer.Option(help="Print the Secret for kubectl instead of the caBundle.")] = False,
) -> None:
    """Make sure that the directory holds valid certificates; print the caBundle, or the Secret."""
    names = name if name is not None else names_kept(out, authority, namespace)
    material = issue_directory(out, authority, terms_for(namespace, names, leaf_days), SystemClock().now())
    if secret:
        print(yaml.safe_dump(cluster.secret_manifest(namespace, material), sort_keys=False), end="")
    else:
        print(base64.b64encode(material.bundle_pem).decode())


@app.command()
def rotate(
    *,
    out: Directory = OUT,
    authority: AuthorityDirectory = None,
    namespace: Namespace = SYSTEM_NAMESPACE,
    name: Names = None,
    leaf_days: LeafDays = 90,
    new_authority: Annotated[bool, typer.Option(help="Begin to replace the authority, due or not.")] = False,
    in_cluster: Annotated[bool, typer.Option(help="Keep everything in Secrets and announce the bundle.")] = False,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Do what is due: run it daily. A new authority signs a day after it is announced; a day later the old one goes."""
    now_seconds = SystemClock().now()
    if in_cluster:
        terms = terms_for(namespace, name or (), leaf_days)
        material = _with_api(
            kubeconfig, lambda api: cluster.rotate(api, namespace, terms, now_seconds, new_authority=new_authority)
        )
    else:
        names = name if name is not None else names_kept(out, authority, namespace)
        terms = terms_for(namespace, names, leaf_days)
        material = issue_directory(out, authority, terms, now_seconds, new_authority=new_authority)
    _print_status(material, terms, now_seconds)


@app.command()
def status(
    *,
    out: Directory = OUT,
    authority: AuthorityDirectory = None,
    namespace: Namespace = SYSTEM_NAMESPACE,
    leaf_days: LeafDays = 90,
) -> None:
    """Say what the directory holds and until when; exit status 1 when something is due."""
    material = store.load_material(out, authority or beside(out))
    terms = terms_for(namespace, names_kept(out, authority, namespace), leaf_days)
    now_seconds = SystemClock().now()
    if not material.authorities:
        print(f"there are no certificates in {out}")
    _print_status(material, terms, now_seconds)
    if not material.authorities or advance(material, terms, now_seconds) != material:
        print("due: run python -m certs rotate")
        raise typer.Exit(1)


@app.command()
def patch_ca(out: Directory = OUT, kubeconfig: Kubeconfig = None) -> None:
    """Let the API server trust OUT/ca.crt for both webhook registrations and the read API."""
    if not (out / "ca.crt").exists():
        raise ValueError(
            f"there is no {out / 'ca.crt'}; run python -m certs issue first, or give its directory by --out"
        )
    bundle_pem = (out / "ca.crt").read_bytes()
    for path in _with_api(kubeconfig, lambda api: cluster.patch_bundle(api, bundle_pem)):
        print(f"patched {path.rsplit('/', 2)[-2]}/{path.rsplit('/', 1)[-1]}")


def _with_api(kubeconfig: Path | None, work: Callable[[Api], Awaitable[Result]]) -> Result:
    from webhook.kube.connecting import connected  # noqa: PLC0415 - the client library is slow to import and rarely needed

    async def run() -> Result:
        async with connected(kubeconfig, "tutti-certs") as api:
            return await work(api)

    return asyncio.run(run())


def _print_status(material: Material, terms: Terms, now_seconds: float) -> None:
    for authority in material.authorities:
        print(f"authority  {_describe(authority, now_seconds)}")
    if material.leaf is not None:
        print(f"leaf       {_describe(material.leaf, now_seconds)}")
        why = why_leaf_is_due(material.leaf, material.authorities[0], terms, now_seconds)
        print(f"           for {', '.join(material.leaf.names)}" + (f" ({why})" if why else ""))


def _describe(pair: Pair, now_seconds: float) -> str:
    subject = pair.certificate.subject.rfc4514_string()
    ends = datetime.fromtimestamp(pair.ends_seconds, UTC).date()
    return f"{subject}, until {ends} ({(pair.ends_seconds - now_seconds) / DAY_SECONDS:.0f} days)"


def main() -> None:
    """Run a command; say what went wrong in one line."""
    try:
        app()
    except OSError as error:
        sys.exit(f"certs: {error.filename}: {in_words(error)}")
    except (TuttiError, ValueError) as error:
        sys.exit(f"certs: {error}")


if __name__ == "__main__":
    main()
