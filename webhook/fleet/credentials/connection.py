"""A connection to a member, of what its kubeconfig says."""

import os
import ssl
import tempfile

from webhook import cipher_suites
from webhook.core.notation.problem import Problem
from webhook.errors import WrongInput
from webhook.fleet.credentials.kubeconfig import Account
from webhook.kube.api import Api
from webhook.kube.connecting import reach


def reached(account: Account) -> Api:
    """Return a connection to a member. Raises WrongInput where its certificates cannot be used."""
    try:
        tls = cipher_suites.client_context(account.authority or None)
        if account.certificate:
            _present(tls, account)
    except (OSError, ValueError) as error:
        problem = Problem("kubeconfig", "", f"its certificates cannot be used: {error}", "copy them again")
        raise WrongInput((problem,)) from error
    return reach(account.server, tls, account.token, server_hostname=account.server_name, user_agent="tutti-hub")


def _present(tls: ssl.SSLContext, account: Account) -> None:
    """Load a client certificate, which OpenSSL takes from a file alone: one that is gone when this returns."""
    with tempfile.NamedTemporaryFile("w", prefix="tutti-hub-") as pair:
        os.chmod(pair.name, 0o600)
        pair.write(f"{account.certificate}\n{account.key}\n")
        pair.flush()
        # Without a password OpenSSL would ask somebody at a terminal for that of an encrypted key.
        tls.load_cert_chain(pair.name, password="")
