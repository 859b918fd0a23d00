"""Which job an object or a pod belongs to by its controllers, whatever its labels say.

Anybody may write a label on a pod template, and pods of a job that ran before Tutti came carry none of ours. What the
API server's controllers wrote tells: a pod names the object that controls it, and that its own owner. Kept are all
objects of job kinds, un-gated ones too, and those that are gone for as long as a pod or a child of theirs is left, as
far as its owners are followed.

A reference to an owner in another namespace means nothing in Kubernetes, and may be anybody's: it is not followed.
"""

from collections.abc import Iterable, Iterator
from sys import intern
from typing import Final

DEPTH_MAX: Final = 10
"""Owners that follow each other; anybody may write references that go round in a circle."""


class Lineage:
    """Controllers by uid."""

    def __init__(self) -> None:
        self._owners: dict[str, str] = {}
        """Object to the one to whose gang it belongs, wherever that is; empty for a gang of its own."""
        self._namespaces: dict[str, str] = {}
        self._children: dict[str, set[str]] = {}
        self._pods: dict[str, set[str]] = {}
        """Object to the pods that it controls, or controlled until they were orphaned."""
        self._controllers: dict[str, str] = {}
        """The same by pod."""
        self._gone: set[str] = set()
        self._guessed: set[str] = set()
        """Objects and pods that are kept below one that nobody saw, as their labels say."""

    # -- what exists ------------------------------------------------------------------------------------------------

    def put(self, uid: str, namespace: str, owner: str, *, alone: bool = False, made_for: str = "") -> bool:
        """Take in an object and the owner to whose gang it belongs, empty for none; return whether that is news.

        One that was orphaned goes on belonging to that gang, whose room its pods use, unless it is ``alone``: a gang
        of its own, to which they are charged. Of one that was orphaned before anybody looked its labels say for which
        owner it was ``made_for``; where that one turns up, they are not believed any more.
        """
        before = self._owners.get(uid)
        self._gone.discard(uid)
        if before is None:
            self._unguess(uid)
        guess = made_for if before is None and not owner and not alone and made_for != uid else ""
        if owner or guess or alone:
            # One that is an orphan still was guessed right as long as nobody is there to be asked.
            self._note_guess(uid, guess)
        owner = owner or guess or ("" if alone else before or "")
        if before == owner:
            return False
        self._owners[uid] = owner
        self._namespaces[uid] = intern(namespace)
        if owner:
            self._children.setdefault(owner, set()).add(uid)
        # Not before: the new owner may be gone, and kept for the former one alone.
        if before:
            self._disown(before, uid)
        return True

    def drop(self, uid: str) -> None:
        """Take note that an object is gone."""
        if uid in self._owners:
            self._gone.add(uid)
            self._tidy(uid)

    def _note_guess(self, uid: str, guess: str) -> None:
        if guess:
            self._guessed.add(uid)
        else:
            self._guessed.discard(uid)

    def _unguess(self, uid: str) -> None:
        """Believe no label any more that says that something was made for an object: it is there to be asked."""
        for child in self._children.get(uid, set()) & self._guessed:
            self._guessed.discard(child)
            self._owners[child] = ""
            self._disown(uid, child)
        for pod in self._pods.get(uid, set()) & self._guessed:
            self.drop_pod(pod)

    def put_pod(self, uid: str, controller: str, made_for: str = "") -> str:
        """Take in a pod; return what controls it, or did before it was orphaned, or for what it was ``made_for``."""
        before = self._controllers.get(uid, "")
        guess = "" if controller or before else made_for
        if controller or guess:
            self._note_guess(uid, guess)
        controller = controller or before or guess
        if controller != before:
            self._controllers[uid] = controller
            self._pods.setdefault(controller, set()).add(uid)
            if before:
                self._release(before, uid)
        return controller

    def drop_pod(self, uid: str) -> None:
        """Forget a pod."""
        controller = self._controllers.pop(uid, "")
        self._guessed.discard(uid)
        if controller:
            self._release(controller, uid)

    def _release(self, controller: str, pod: str) -> None:
        _discard(self._pods, controller, pod)
        self._tidy(controller)

    def _disown(self, owner: str, child: str) -> None:
        _discard(self._children, owner, child)
        self._tidy(owner)

    def _tidy(self, uid: str) -> None:
        """Forget an object that is gone and that nothing left belongs to, and of its owners those that are so too.

        If it stays, the line of those that are gone may have become so long that nobody asks for its top any more.
        """
        if uid in self._gone:
            uid = self._forget_upwards(uid)
            for _ in range(DEPTH_MAX):
                uid = self._owners.get(uid) or uid
            self._forget_upwards(uid)

    def _forget_upwards(self, uid: str) -> str:
        """Return the first of an object and its owners that is kept, or was not seen; empty for none."""
        while self._is_over(uid):
            owner = self._owners.pop(uid)
            if owner:
                _discard(self._children, owner, uid)
            del self._namespaces[uid]
            self._guessed.discard(uid)
            self._gone.discard(uid)
            uid = owner
        return uid

    def _is_over(self, uid: str) -> bool:
        """Return whether nobody asks for an object any more: it is gone, and so is all that its next children lead to.

        Of several children one is left, or leads to one that is: else they would be forgotten. A circle of which
        nothing is left is a line of such that has no end.
        """
        for _ in range(DEPTH_MAX):
            if uid not in self._gone or uid in self._pods:
                return False
            children = self._children.get(uid, ())
            if len(children) != 1:
                return not children
            (uid,) = children
        return True

    # -- questions --------------------------------------------------------------------------------------------------

    def knows(self, uid: str) -> bool:
        """Return whether an object was seen and is there, or something of it."""
        return uid in self._owners

    def outlives(self, controller: str) -> bool:
        """Return whether what ``controller`` controls stays though its gang is gone, below an object that was orphaned.

        What is owned by something that is gone, or was never seen, is about to be collected.
        """
        uid = controller
        for _ in range(DEPTH_MAX):
            if uid not in self._owners or uid in self._gone:
                return False
            owner = self._owner_of(uid)
            if uid in self._guessed or not owner:
                return True
            uid = owner
        return False

    def belongs(self, controller: str, gang: str) -> bool | None:
        """Return whether what ``controller`` controls is part of ``gang``; None where its owners are not all known."""
        uid: str | None = controller
        for _ in range(DEPTH_MAX):
            if uid == gang:
                return True
            if not uid:
                return False if uid == "" and controller else None
            uid = self._owner_of(uid)
        return None

    def line(self, controller: str, namespace: str = "") -> Iterator[str]:
        """Yield what something is controlled by: ``controller``, its owner, and so on as far as they are known.

        ``namespace``: where that something is; empty if it is where ``controller`` is.
        """
        uid: str | None = "" if namespace and self._namespaces.get(controller, namespace) != namespace else controller
        for _ in range(DEPTH_MAX):
            if not uid:
                return
            yield uid
            uid = self._owner_of(uid)

    def _owner_of(self, uid: str) -> str | None:
        """Return the object to whose gang another belongs; None for one that was not seen."""
        owner = self._owners.get(uid)
        if not owner:
            return owner
        here = self._namespaces[uid]
        return owner if self._namespaces.get(owner, here) == here else ""

    def pods_below(self, uid: str, namespace: str) -> Iterator[str]:
        """Yield the uids of the pods that an object of a namespace controls, itself or by its children."""
        for each in self.below(uid, namespace):
            yield from self.pods_of(each)

    def pods_of(self, uid: str) -> Iterable[str]:
        """Return the uids of the pods that say that an object controls them itself, in whichever namespace."""
        return self._pods.get(uid, ())

    def controller_of(self, pod: str) -> str:
        """Return what controls a pod, as ``put_pod`` says."""
        return self._controllers.get(pod, "")

    def below(self, uid: str, namespace: str) -> Iterator[str]:
        """Yield an object of a namespace and what was made for it, its children and theirs.

        It need not have been seen: what was made for a gang that is gone may be all that is known of it.
        """
        level = [uid]
        for _ in range(DEPTH_MAX):
            yield from level
            found = (child for each in level for child in self._children.get(each, ()))
            level = [child for child in found if self._namespaces[child] == namespace]


def _discard(table: dict[str, set[str]], key: str, uid: str) -> None:
    found = table[key]
    found.discard(uid)
    if not found:
        del table[key]
