"""Explains an invalid setting: its place, its value unless it may be secret, and what is allowed."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, get_args, get_origin

import pydantic

from specclient.config.settings import Settings
from specclient.runtime.allowed_names import allowed_names
from specclient.types.capabilities import Capabilities

__all__ = ["explain_invalid_setting"]

#: Tables and settings whose values are never quoted in errors, because they may hold keys and passwords.
_MAY_HOLD_KEYS = ("cache", "providers", "ledger", "server")
_HOLD_NO_KEYS = {
    "dialect", "api_key_env", "key_header", "stream_usage", "price_provider", "capabilities", "project",
    "location", "template",
}  # fmt: skip
#: Errors of the settings' own checks whose text names the value.
_NAME_THE_VALUE = ("route", "fleet_name", "pool", "draft", "currency", "unit")
#: Words of Python in pydantic's texts, and those of TOML.
_WORDS = {
    "Input should be": "it must be",
    "Tuple should have": "it must have",
    " after validation": "",
    "a valid dictionary": "a table",
    "a valid tuple": "an array",
    "a valid list": "an array",
    "a valid decimal": "a number",
    "must be False": "must be false",
}


def explain_invalid_setting(error: pydantic.ValidationError, source: Path | None) -> str:
    """Return a message of one line about the first invalid setting.

    Args:
        error: what the check of the settings raised.
        source: the file that was read; None if the settings are a program's own.
    """
    errors = error.errors(include_url=False)
    first = errors[0]
    place = _without_branch(first["loc"])
    where = ".".join(map(str, place))
    begin = f"{source or 'settings'}: "
    kind = first["type"]
    if kind == "extra_forbidden":
        return f"{begin}unknown setting {where!r}; {_allowed(place)}"
    if kind == "needed":
        return f"{begin}{where}.{first['ctx']['key']} is required: {first['msg']}"
    if kind == "missing":
        return f"{begin}{where} is required"
    if place[-1:] == ("[key]",):
        table = ".".join(map(str, place[:-2]))
        return f"{begin}{table} has the key {first['input']!r}: {_in_words(first['msg'])}"
    if kind in _NAME_THE_VALUE:
        return f"{begin}{where}: {first['msg']}" if where else f"{begin}{first['msg']}"
    if kind == "unexpected_keyword_argument":
        allowed = ", ".join(field.name for field in dataclasses.fields(Capabilities))
        return f"{begin}unknown setting {where!r}; known are {allowed}"
    same = [each for each in errors if _without_branch(each["loc"]) == place]
    reasons = ", or ".join(dict.fromkeys(_in_words(each["msg"]) for each in same))
    more = f" (and {len(errors) - len(same)} more)" if len(errors) > len(same) else ""
    return f"{begin}{where}{_value(place, _input(same))}: {reasons}{more}"


def _input(errors: list[Any]) -> Any:
    """Return the whole value where a check of one of its elements failed as well."""
    return min(errors, key=lambda each: len(each["loc"]))["input"]


def _value(place: tuple[int | str, ...], value: object) -> str:
    return f" is a value of type {type(value).__name__}" if _may_hold_key(place) else f" is {value!r}"


def _in_words(text: str) -> str:
    for python, toml in _WORDS.items():
        text = text.replace(python, toml)
    return re.sub(r" or instance of \w+", "", text)


def _allowed(place: tuple[int | str, ...]) -> str:
    """Return the setting that was probably meant, and all settings of its table."""
    table = _kind_at(place[:-1])
    names: Iterable[str] = table.model_fields if _is_table(table) else ()
    known = [name for name in names if place[:-1] or name != "source"]
    return allowed_names(str(place[-1]), known)


def _kind_at(place: tuple[int | str, ...]) -> Any:
    """Return the type of the setting at a place, or None where the place is no setting."""
    kind: Any = Settings
    for key in place:
        if _is_table(kind):
            field = kind.model_fields.get(key)
            kind = None if field is None else field.annotation
        else:
            kind = get_args(kind)[-1] if get_origin(kind) is dict else None
        tables = [each for each in get_args(kind) if _is_table(each)]
        if tables and get_origin(kind) is not dict:  # a table, or false
            kind = tables[0]
    return kind


def _is_table(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, pydantic.BaseModel)


def _without_branch(place: tuple[int | str, ...]) -> tuple[int | str, ...]:
    """Return a place without pydantic's names of the types that were tried, such as ``constrained-int``."""
    kept: list[int | str] = []
    for key in place:
        if str(key).startswith(("constrained-", "tuple[", "literal[")):
            break
        table = _kind_at(tuple(kept))
        if not (_is_table(table) and key == table.__name__):
            kept.append(key)
    return tuple(kept)


def _may_hold_key(place: tuple[int | str, ...]) -> bool:
    """Return whether the value at a place of the settings may hold a key or a password.

    That is also so for all settings together, for the table of a local model or a fleet, and for its ``env``.
    """
    if place[:2] == ("local", "models"):
        return not place[3:] or place[3] in ("env", "path")
    if place[:1] == ("fleets",):
        if place[2:3] == ("pools",):
            return not place[4:] or place[4] == "url"
        return not place[2:] or place[2] in ("arguments", "env", "metrics", "path", "url")
    return not place or (place[0] in _MAY_HOLD_KEYS and not set(place[2:3]) & _HOLD_NO_KEYS)
