"""Which members a hub has: the kubeconfigs of its directory, and its cluster's MultiKueueClusters with their Secrets.

Both are looked at every two seconds. New credentials are taken at once, and requests that are under way end on the old
ones; what is refused leaves in use what was. A member that is named while the hub runs joins once it has answered, so
that a wrong name stops nobody; all that are named when it starts are waited for, for they may have gangs (rule P4),
those too whose credentials are refused.
What becomes of each MultiKueueCluster and AdmissionCheck is written on it.
"""

import asyncio
import base64
import binascii
import contextlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import orjson
import structlog

from webhook import metrics
from webhook.core.notation import names
from webhook.core.notation.moments import time_text
from webhook.core.notation.problem import Problem
from webhook.core.notation.shortened import shortened
from webhook.errors import ApiError, NotFound, WrongInput, in_words
from webhook.fleet.credentials import expiry, kubeconfig
from webhook.fleet.credentials.kubeconfig import Account
from webhook.fleet.hub import Hub
from webhook.fleet.jobs.events import MEMBERS, expiring
from webhook.fleet.members.member import Member, NoAnswer
from webhook.fleet.policies import multikueue
from webhook.fleet.policies.multikueue import Condition, Named
from webhook.kube.api import MERGE_PATCH, METADATA, Api
from webhook.untyped import paths
from webhook.untyped.values import text

log = structlog.get_logger(__name__)

FOLLOW_SECONDS: Final = 2.0
SOON_SECONDS: Final = 0.2
"""Until all members are named, for which offers wait."""
OLD_CONNECTION_SECONDS: Final = 30.0
"""What is under way on a connection ends on it."""
REASON_CHARACTERS: Final = 500
"""Of a condition's message."""
_NO_TUTTI: Final = "it has no Tutti, or one too old to know permits"
_TWICE: Final = "a member of this name is in the hub's directory"


class Roster:
    """Keeps the members of a hub what its directory and its MultiKueueClusters say."""

    def __init__(self, hub: Hub, directory: Path, reach: Callable[[Account], Api]) -> None:
        """Take the directory's members. Raises WrongInput where there is no directory."""
        self._hub = hub
        self._directory = directory
        self._reach = reach
        self._listed, refused = read(directory)
        self._unread = refused.keys()
        """Names whose files are refused, now: they may have gangs all the same."""
        self._at_start = self._listed.keys() | refused.keys()
        self.known: dict[str, Account] = {}
        """Credentials that are in use."""
        self._conditions: dict[str, Condition] = {}
        """What is wrong with a MultiKueueCluster that is no member."""
        self._refused: dict[str, Condition] = {}
        """What was said last of names that are no members yet, or of new credentials."""
        self._warned: dict[str, tuple[float, float]] = {}
        """Whose end of credentials was announced: until when they are valid, and in which hour."""
        self._started = False
        self._told = ""
        self._closing: set[asyncio.Task[None]] = set()
        self._wanted: dict[str, Account] = {}
        """Credentials that can be used, by what is named now."""
        self._joining: dict[str, asyncio.Task[None]] = {}
        """Beside the turns: a name that nobody answers to keeps no other from its new credentials."""
        hub.fleet.members_known = False
        self._tell(refused.values())
        for name, account in self._listed.items():
            try:
                hub.join(name, reach(account))
            except WrongInput as error:
                self._refuse(name, multikueue.bad_kubeconfig(shortened(str(error), REASON_CHARACTERS)))
            else:
                self.known[name] = account

    async def run(self) -> None:
        """Follow until cancelled."""
        try:
            while True:
                for work in (self.look, self._report, self._warn):
                    try:
                        await work()
                    except Exception:
                        # What one member's credentials say must not end what all of them need.
                        log.exception("fleet.broken")
                await asyncio.sleep(FOLLOW_SECONDS if self._started else SOON_SECONDS)
        finally:
            for task in self._joining.values():
                task.cancel()

    async def look(self) -> None:
        """Make the members what is named now."""
        await self._read_directory()
        if not self._hub.set_up.clusters_read:
            # New credentials of a member rest on nothing else. While queues and checks cannot be read nothing is
            # offered, but what a member has is to be followed, and hear that its hub is there.
            for name in self._listed.keys() & self._hub.fleet.members.keys():
                self._take(name, self._listed[name])
            return
        clusters = self._hub.set_up.set_up().clusters
        self._conditions = {name: what for name, what in self._conditions.items() if name in clusters}
        self._refused = {name: what for name, what in self._refused.items() if name in clusters or name in self._listed}
        found = await asyncio.gather(*(self._account_of(each) for each in clusters.values()))
        wanted = {name: account for name, account in zip(clusters, found, strict=True) if account is not None}
        self._wanted = {**wanted, **self._listed}
        for name, account in self._wanted.items():
            self._take(name, account)
        for name in self._hub.fleet.members.keys() - self._listed.keys() - clusters.keys():
            log.info("fleet.left", member=name)
            self.known.pop(name, None)
            _show(name, None)
            self._close_later(self._hub.leave(name))
        named = clusters.keys() | self._listed.keys() | self._unread
        self._hub.fleet.unjoined = named - self._hub.fleet.members.keys()
        if not self._started:
            # A cluster that cannot be reached may have gangs all the same.
            self._hub.fleet.swept.make_due(named - self._hub.fleet.members.keys() - self._late)
            self._hub.fleet.members_known = self._started = True
        for name in self._hub.fleet.swept.due.keys() - named:
            del self._hub.fleet.swept.due[name]

    @property
    def _late(self) -> set[str]:
        """Names of files that came after the hub had begun: nothing of theirs is from before."""
        return self._listed.keys() - self._at_start

    async def _read_directory(self) -> None:
        """Take what each file says. One that is refused leaves its own member as it was, and every other alone."""
        try:
            found, refused = await asyncio.to_thread(read, self._directory)
        except WrongInput as error:
            self._tell([error])
            return
        self._listed = {name: self._listed[name] for name in refused if name in self._listed} | found
        self._unread = refused.keys()
        self._tell(refused.values())

    def _tell(self, refused: Iterable[WrongInput]) -> None:
        told = "\n".join(map(str, refused))
        if told and told != self._told:
            log.error("fleet.kubeconfig_refused", error=told)
        self._told = told

    async def _account_of(self, cluster: Named) -> Account | None:
        """Return the credentials that a MultiKueueCluster names; None where there are none to use."""
        if cluster.name in self._listed:
            self._conditions[cluster.name] = multikueue.bad_kubeconfig(_TWICE)
            return None
        try:
            if cluster.problem:
                raise WrongInput((Problem("", "", cluster.problem, ""),))
            written = await self._secret(cluster.names[0])
            # Beside the loop: dense YAML of a Secret's length takes a second.
            account = await asyncio.to_thread(kubeconfig.read, written, f"Secret {cluster.names[0]}")
        except WrongInput as error:
            self._conditions[cluster.name] = multikueue.bad_kubeconfig(shortened(str(error), REASON_CHARACTERS))
            return None
        except ApiError as error:
            if cluster.name not in self.known:
                self._conditions[cluster.name] = multikueue.bad_kubeconfig(shortened(str(error), REASON_CHARACTERS))
            return self.known.get(cluster.name)
        self._conditions.pop(cluster.name, None)
        return account

    async def _secret(self, name: str) -> str:
        path = f"/api/v1/namespaces/{multikueue.NAMESPACE}/secrets/{name}"
        try:
            encoded = paths.find(orjson.loads(await self._hub.fleet.api.request("GET", path)), ("data", multikueue.KEY))
            return base64.b64decode(text(encoded), validate=True).decode()
        except NotFound:
            why = f"is not in {multikueue.NAMESPACE}"
        except (binascii.Error, UnicodeDecodeError):
            why = f"has a {multikueue.KEY} that is not text"
        raise WrongInput((Problem("Secret", name, why, "create it with tutti fleet account"),))

    def _take(self, name: str, account: Account) -> None:
        """Use these credentials for a member; one that is new joins, once it has answered if the hub runs already."""
        if self.known.get(name) == account or name in self._joining:
            return
        member = self._hub.fleet.members.get(name)
        try:
            api = self._reach(account)
        except WrongInput as error:
            self._refuse(name, multikueue.bad_kubeconfig(shortened(str(error), REASON_CHARACTERS)))
            return
        if member is not None:
            self.known[name] = account
            self._refused.pop(name, None)
            self._close_later(Member(name, self._hub.fleet.reach(name, api)))
            log.info("fleet.credentials_changed", member=name)
            return
        if not (self._started or name in self._late):
            self._join(name, account, api)
            return
        self._joining[name] = task = asyncio.get_running_loop().create_task(self._join_checked(name, account, api))
        task.add_done_callback(lambda _: self._joining.pop(name))

    async def _join_checked(self, name: str, account: Account, api: Api) -> None:
        """Let a name be a member that answers, if it is still named with these credentials by then."""
        try:
            await self._check(Member(name, api))
        except NoAnswer as error:
            if name in self._wanted:
                self._refuse(name, multikueue.not_connected(shortened(str(error), REASON_CHARACTERS)))
        except Exception:
            log.exception("fleet.broken", member=name)
        else:
            if self._wanted.get(name) == account:
                self._join(name, account, api)
                return
        await api.close()

    def _join(self, name: str, account: Account, api: Api) -> None:
        self.known[name] = account
        self._refused.pop(name, None)
        self._conditions.pop(name, None)
        self._hub.join(name, api)
        log.info("fleet.joined", member=name)

    async def _check(self, candidate: Member) -> None:
        """See that a name can be a member. Raises NoAnswer.

        All offers wait until it was swept, so it is asked for what a sweep reads.
        """
        await candidate.check()
        await candidate.lets_list(self._hub.kinds.values(), self._hub.fleet.uid)

    def _refuse(self, name: str, why: Condition) -> None:
        """Say what keeps a name from being a member, or its new credentials from being used: once, until that changes.

        A file has no condition, so the log is all that tells of it.
        """
        self._conditions[name] = why
        if self._refused.get(name) != why:
            self._refused[name] = why
            log.warning("fleet.not_taken", member=name, reason=why.reason, error=why.message)

    def _close_later(self, member: Member) -> None:
        async def close() -> None:
            await asyncio.sleep(OLD_CONNECTION_SECONDS)
            await member.close()

        task = asyncio.get_running_loop().create_task(close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def _warn(self) -> None:
        """Tell of credentials that end soon, once an hour for each member."""
        now, clusters = self._hub.fleet.clock.now(), self._hub.set_up.set_up().clusters
        for name, account in self.known.items():
            good = expiry.validity(account)
            _show(name, good)
            if good is None or now < good.renew_from or self._warned.get(name) == (good.until, now // 3600):
                continue
            self._warned[name] = good.until, now // 3600
            log.warning("fleet.credentials_expire", member=name, until=time_text(int(good.until)))
            listed = name in self._listed or name not in clusters
            namespace, secret = (
                (names.SYSTEM_NAMESPACE, MEMBERS) if listed else (multikueue.NAMESPACE, clusters[name].names[0])
            )
            event = expiring(namespace, secret, name, good.until, now)
            path = f"/api/v1/namespaces/{namespace}/events"
            # Nothing depends on it.
            with contextlib.suppress(ApiError):
                await self._hub.fleet.api.request("POST", path, body=orjson.dumps(event))

    # -- what is said of it -------------------------------------------------------------------------------------------

    async def _report(self) -> None:
        """Write what has become of each cluster, and of the checks that name them."""
        set_up = self._hub.set_up.set_up()
        said = {name: self._condition_of(name) for name in set_up.clusters}
        for name, cluster in set_up.clusters.items():
            await self._store("multikueueclusters", cluster, said[name])
        active = {name for name, condition in said.items() if condition is not None and condition.status == "True"}
        for check in set_up.checks.values():
            await self._store("admissionchecks", check, set_up.condition_of_check(check, active))

    def _condition_of(self, name: str) -> Condition | None:
        """Return what a MultiKueueCluster says; None while it is not known."""
        member = self._hub.fleet.members.get(name)
        if name in self._conditions or member is None:
            return self._conditions.get(name)
        if member.health.trouble:
            return multikueue.not_connected(member.health.trouble)
        if member.knows_permits is False:
            return multikueue.not_connected(_NO_TUTTI)
        return multikueue.CONNECTED if member.knows_permits else None

    async def _store(self, plural: str, obj: Named, condition: Condition | None) -> None:
        if condition is None or condition == obj.stored:
            return
        same = obj.stored is not None and obj.stored.status == condition.status and obj.since
        told = {
            "type": multikueue.ACTIVE,
            **condition._asdict(),
            "lastTransitionTime": obj.since if same else time_text(int(self._hub.fleet.clock.now())),
            "observedGeneration": obj.generation,
        }
        path = f"/apis/{multikueue.GROUP}/{self._hub.set_up.version_of(plural)}/{plural}/{obj.name}/status"
        body = orjson.dumps({"metadata": {"uid": obj.uid}, "status": {"conditions": [told]}})
        try:
            await self._hub.fleet.api.request("PATCH", path, body=body, content_type=MERGE_PATCH, accept=METADATA)
        except ApiError as error:
            # It is compared again in two seconds.
            log.info("fleet.condition_not_written", path=path, error=str(error))


def _show(member: str, good: expiry.Validity | None) -> None:
    """Show until when a member's credentials are good; of those that do not say, and of no member, nothing."""
    if good is not None:
        metrics.CREDENTIALS_EXPIRE.labels(member).set(good.until)
        metrics.CREDENTIALS_RENEW.labels(member).set(good.renew_from)
        return
    for gauge in (metrics.CREDENTIALS_EXPIRE, metrics.CREDENTIALS_RENEW):
        with contextlib.suppress(KeyError):
            gauge.remove(member)


def read(directory: Path) -> tuple[dict[str, Account], dict[str, WrongInput]]:
    """Return the members of a directory by name, and what is wrong with the others. Raises WrongInput without one."""
    found: dict[str, Account] = {}
    refused: dict[str, WrongInput] = {}
    # A mounted Secret has its files behind links, and folders of its own whose names begin with a dot.
    try:
        files = sorted(path for path in directory.iterdir() if not path.name.startswith(".") and path.is_file())
    except OSError as error:
        fix = "mount the Secret with the members' kubeconfigs there"
        raise WrongInput((Problem("fleet_members", str(directory), in_words(error), fix),)) from error
    for path in files:
        try:
            found[path.name] = kubeconfig.read(path.read_text(), f"member {path.name}")
        except WrongInput as error:
            refused[path.name] = error
        except (OSError, UnicodeDecodeError) as error:
            refused[path.name] = WrongInput((Problem(f"member {path.name}", "", in_words(error), "give a kubeconfig"),))
    return found, refused
