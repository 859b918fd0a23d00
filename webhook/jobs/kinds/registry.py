"""All known job kinds: the shipped entries, and what an operator adds or overrides by configuration."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

from webhook.core.notation import names
from webhook.jobs.kinds import custom_kinds
from webhook.jobs.kinds.kind import JobKind
from webhook.jobs.kinds.shipped import ENTRIES


def _by_key(kinds: Iterable[JobKind]) -> Mapping[str, JobKind]:
    return MappingProxyType({kind.key: kind for kind in kinds})


KINDS: Final[Mapping[str, JobKind]] = _by_key(ENTRIES)
"""The shipped kinds by key, ``Kind.group``."""


def by_name(name: str, kinds: Mapping[str, JobKind] = KINDS) -> JobKind | None:
    """Return the kind a person means: its key, or without regard to case its kind, plural or short name, each
    optionally with ``.group``. A name that several kinds share means the first registered.
    """
    if name in kinds:
        return kinds[name]
    short, _, group = name.lower().partition(".")
    for kind in kinds.values():
        if short in (kind.singular, kind.plural, *kind.aliases) and group in ("", kind.group):
            return kind
    return None


def with_custom(configs: Iterable[Mapping[str, Any]]) -> Mapping[str, JobKind]:
    """Return the shipped kinds with an operator's own added or replaced. Raises WrongInput with all problems."""
    return MappingProxyType(custom_kinds.with_custom(configs, KINDS))


def of_hub(kinds: Mapping[str, JobKind]) -> Mapping[str, JobKind]:
    """Return the kinds as they are in a hub: its jobs are given to members when they are made, and wait here first.

    A Job that shows pods that have ended asks for all of them: it may show those of an earlier copy, for the API server
    lets their number never go down, and the next copy runs them again.
    """
    manager = names.HUB_MANAGER
    given = {
        key: replace(
            kind,
            managers=(*kind.managers, manager),
            given_manager=manager,
            reclaim=None if kind.reclaim == "job" else kind.reclaim,
        )
        for key, kind in kinds.items()
        if kind.dispatchable
    }
    return MappingProxyType({**kinds, **given})
