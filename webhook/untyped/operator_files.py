"""What operators write in files: the form that all of it has, and what pydantic finds wrong with it, as problems."""

from dataclasses import replace
from typing import Annotated, Any, Final

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

from webhook.core.notation import quantity
from webhook.core.notation.problem import Problem, Unreadable, shown

_IN_WORDS: Final = {
    "dict_type": "must be a map of keys to values",
    "extra_forbidden": "there is no such key",
    "missing": "is required",
    "model_type": "must be a map of keys to values",
}
"""By pydantic's types of errors."""


class Section(BaseModel):
    """Base of all sections: immutable, and a misspelt key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


def _amounts(value: object) -> object:
    if not isinstance(value, dict):
        return value
    for name, amount in value.items():
        try:
            quantity.parse(amount)
        except quantity.QuantityError as error:
            raise Unreadable.of(error.problem.within(str(name))) from None
    return {name: str(amount) for name, amount in value.items()}


Amounts = Annotated[dict[str, str], BeforeValidator(_amounts)]
"""Resources to quantities."""


def problems_of(error: ValidationError, where: str, separator: str) -> tuple[Problem, ...]:
    """Return one problem for each thing that is wrong; its path is ``where``, the separator and the dotted place."""
    return tuple(_problem(item, where, separator) for item in error.errors())


def said(item: Any) -> str:
    """Return what one of pydantic's errors says: where a check of ours raised it, in our own words alone."""
    cause = item.get("ctx", {}).get("error")
    if isinstance(cause, ValueError):
        return str(cause)
    # Pydantic names classes of ours, which nobody has who writes a file.
    return _IN_WORDS.get(item["type"]) or str(item["msg"]).replace("Input should be", "must be", 1)


def _problem(item: Any, where: str, separator: str) -> Problem:
    # Names of union members and of a mapping's keys are pydantic's own, nobody wrote them.
    place = [str(key) for key in item["loc"] if not str(key).startswith("_") and key != "[key]"]
    cause = item.get("ctx", {}).get("error")
    if isinstance(cause, Unreadable):
        found = cause.problem
        place += [found.path] if found.path else []
    else:
        value = "" if isinstance(item["input"], dict) else shown(item["input"])
        found = Problem("", value, said(item), "correct or remove it")
    return replace(found, path=f"{where}{separator}{'.'.join(place)}" if place else where)
