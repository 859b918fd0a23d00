"""The way to an API server: kubernetes-asyncio finds it and keeps the credentials fresh; ``http`` sends the requests.

Nothing else imports that library, and this module does only when it is called: of it only what reads credentials
(``_library``).
"""

import errno
import importlib
import os
import ssl
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from webhook import cipher_suites
from webhook.core.notation.problem import Problem
from webhook.errors import WrongInput, in_words
from webhook.kube.http import Credentials, GivenToken, HttpApi, new_session


@asynccontextmanager
async def connected(kubeconfig: Path | None, user_agent: str) -> AsyncGenerator[HttpApi]:
    """Connect as ``connect`` does, for as long as the context is entered."""
    api = await connect(kubeconfig, user_agent)
    try:
        yield api
    finally:
        await api.close()


async def connect(
    kubeconfig: Path | str | None = None,
    user_agent: str = "tutti",
    *,
    on_date: Callable[[float], None] = lambda unix_seconds: None,
) -> HttpApi:
    """Return the API server of ``kubeconfig``, else of $KUBECONFIG, else of the pod we run in, else of ~/.kube/config.

    No request is sent yet, except to an OIDC issuer where the kubeconfig names one. Raises WrongInput when there is no
    usable configuration.
    """
    # The library's constants are read when it is imported; what is asked for is read now.
    source = str(kubeconfig or "") or os.environ.get("KUBECONFIG") or None
    if source is None and "KUBERNETES_SERVICE_HOST" in os.environ:
        configuration, load = _in_cluster()
    else:
        source = source or str(Path.home() / ".kube" / "config")
        configuration, load = _from_kubeconfig(source)
    try:
        tls = await load()
    except Exception as error:
        raise WrongInput((_unusable(source, error),)) from error
    credentials = Credentials(configuration, load)
    session = new_session(tls, user_agent)
    return HttpApi(
        configuration.host,
        session,
        credentials,
        proxy=configuration.proxy or _environment_proxy(configuration.host),
        server_hostname=configuration.tls_server_name,
        on_date=on_date,
    )


def reach(
    server: str, tls: ssl.SSLContext, token: str = "", *, server_hostname: str = "", user_agent: str = "tutti"
) -> HttpApi:
    """Return the API server at ``server``, by what is given alone: no file, proxy or variable is looked at."""
    session = new_session(tls, user_agent)
    return HttpApi(server, session, GivenToken(token), server_hostname=server_hostname or None)


def _library(name: str) -> Any:
    """Return a module of the library without running its packages' own files.

    Those import 850 modules, a class for each type of the API, and we use none: 33 MiB, half a second of processor.
    """
    for package in ("kubernetes_asyncio", "kubernetes_asyncio.client"):
        if package not in sys.modules:
            spec = find_spec(package)
            assert spec is not None, f"{package} is not installed"
            sys.modules[package] = module_from_spec(spec)
    client: Any = sys.modules["kubernetes_asyncio.client"]
    # What the readers of credentials take from the package; the second one only to name a type.
    client.Configuration = importlib.import_module("kubernetes_asyncio.client.configuration").Configuration
    client.ApiClient = getattr(client, "ApiClient", object)
    return importlib.import_module(f"kubernetes_asyncio.{name}")


def _in_cluster() -> tuple[Any, Callable[[], Awaitable[ssl.SSLContext]]]:
    incluster_config, configuration = _library("config.incluster_config"), _new_configuration()

    async def load() -> ssl.SSLContext:
        incluster_config.load_incluster_config(configuration)
        return _tls(configuration)

    return configuration, load


def _from_kubeconfig(paths: str) -> tuple[Any, Callable[[], Awaitable[ssl.SSLContext]]]:
    kube_config, configuration = _library("config.kube_config"), _new_configuration()

    async def load() -> ssl.SSLContext:
        _require_file(paths)
        try:
            await kube_config.load_kube_config(config_file=paths, client_configuration=configuration)
            return _tls(configuration)
        finally:
            # Keys and certificates that stand in the kubeconfig itself were copied to files for the line above. The
            # library deletes those when the interpreter ends, which a killed process never reaches.
            kube_config._cleanup_temp_files()

    return configuration, load


def _require_file(paths: str) -> None:
    # The library merges what exists; of nothing it only complains in its log.
    if not any(Path(path).expanduser().is_file() for path in paths.split(os.pathsep) if path):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), paths)


def _new_configuration() -> Any:
    return _library("client.configuration").Configuration()


def _unusable(source: str | None, error: Exception) -> Problem:
    return Problem(
        path="kubeconfig",
        value=source or "(the pod's service account)",
        # What the library stumbles over in a document of another kind says nothing to anybody.
        why="is not a kubeconfig" if isinstance(error, TypeError | AttributeError | KeyError) else in_words(error),
        fix="name a readable kubeconfig whose current context is there, or run in a pod with a service account",
    )


def _tls(configuration: Any) -> ssl.SSLContext:
    context = cipher_suites.client_context(file=configuration.ssl_ca_cert)
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, configuration.key_file)
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _environment_proxy(server: str) -> str | None:
    address = urlsplit(server)
    if proxy_bypass(address.hostname or ""):
        return None
    return getproxies().get(address.scheme)
