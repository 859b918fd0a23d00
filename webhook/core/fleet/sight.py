"""What was read in a member about one gang."""

from dataclasses import KW_ONLY, dataclass

from webhook.core.fleet.dispatch import Offer


@dataclass(frozen=True, slots=True)
class Copy:
    """The object in a member that bears the name and kind of the hub's job."""

    uid: str
    version: str
    """Its resourceVersion."""
    hub: str
    """Uid of the kube-system of the hub that it says it is a copy from; empty for an object of somebody else."""
    job: str
    """Uid of the hub's job that it says it is a copy of."""
    offer: Offer
    _: KW_ONLY
    permitted: bool
    """It bears a permit for itself."""
    suspended: bool = True
    deleting: bool = False
    finished: bool = False
    given_up: bool = False
    """Its member has stopped it because nothing was heard of the hub: it never starts again."""
    failed: bool = False
    """It has finished, and not well."""
    succeeds: bool = False
    """It has not finished, and its controller has said that it can only finish well: what is left are its last pods."""


@dataclass(frozen=True, slots=True)
class Sight:
    """One member as it answered; there is none of a member that does not answer."""

    cluster: str
    """Uid of its kube-system."""
    knows_permits: bool
    """Its Tutti starts no copy without one."""
    copy: Copy | None = None
    reserved: bool = False
    """Its ledger has a reservation for the copy. Of one that is granted and shows no permit, no means that the ledger
    had none, or could not be read, while it had no permit: the copy is read after the ledger then."""
    taken_by: str = ""
    """The kind of somebody else's object that has the name which the copy's controller gives to what it makes."""
    unread: str = ""
    """Why it is not known whether its Tutti knows permits, in words that follow its name: that may pass in a moment."""
