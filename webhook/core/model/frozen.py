"""Frozen values that are made by the thousand a second: a job's record, its gang, what is decided about it.

A frozen dataclass guards itself when it runs, so that each of its fields is set by a call when it is made. That takes
three times as long as setting them, and was a tenth of what a review costs. Of these values the type checker alone
says that nobody changes them.
"""

import dataclasses
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field,))
def frozen(cls: type[T]) -> type[T]:
    """Return ``cls`` as a dataclass with slots, and equality and hash by its fields. Use it as a decorator."""
    return dataclasses.dataclass(slots=True, unsafe_hash=True)(cls)
