"""Argument binding, signatures and docstrings of the methods in the endpoint table."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Mapping
from typing import Any, Final

from specclient.resources.base import unexpected_argument
from specclient.resources.table.rows import Row
from specclient.types.params import NOT_GIVEN, CallOptions

#: The keyword arguments of every method, in the order of the signature.
_EVERY_CALL: Final = ("extra_headers", "extra_query", "extra_body", "timeout")
_OURS: Final = tuple(name for name in CallOptions.__annotations__ if name not in _EVERY_CALL)
_DEPRECATED_FRAMES = 3  # from the warning up to the user's call


def bind_arguments(row: Row, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return a call's arguments by name.

    Raises:
        TypeError: an argument is missing or extra; the message is Python's.
    """
    if row.deprecated:
        warnings.warn(row.deprecated, DeprecationWarning, stacklevel=_DEPRECATED_FRAMES)
    call = f"{row.name.rpartition('.')[2]}()"
    positional = row.places[-1:]
    if len(args) > len(positional):
        plural = "" if not positional else "s"
        raise TypeError(
            f"{call} takes {len(positional) + 1} positional argument{plural} but {len(args) + 1} were given"
        )
    given = dict(zip(positional, args, strict=False))
    for name in kwargs:
        if name in given:
            raise TypeError(f"{call} got multiple values for argument {name!r}")
    given.update(kwargs)
    missing = [name for name in (*row.places, *row.params) if name not in given and _must(row, name)]
    if missing:
        _check_names(row, given)
        if positional and positional[0] in missing:
            raise TypeError(f"{call} missing 1 required positional argument: {positional[0]!r}")
        raise TypeError(f"{call} missing {_counted(missing)}")
    if row.either and not any(all(name in given for name in names) for names in row.either):
        _check_names(row, given)
        sets = " or ".join(f"({', '.join(map(repr, names))})" for names in row.either)
        raise TypeError(f"{call} missing required arguments; expected either {sets} to be given")
    return given


def _check_names(row: Row, given: Mapping[str, Any]) -> None:
    """Raise TypeError for the first unexpected argument. Python reports it before missing ones."""
    known = {*row.places, *row.params, *_EVERY_CALL, *_OURS}
    for name in given:
        if name not in known:
            raise unexpected_argument(row.name, name)


def _must(row: Row, name: str) -> bool:
    return name in row.required or name in row.places


def _counted(names: list[str]) -> str:
    quoted = [repr(name) for name in names]
    if len(quoted) == 1:
        return f"1 required keyword-only argument: {quoted[0]}"
    listed = ", ".join(quoted[:-1]) + ("," if len(quoted) > 2 else "") + f" and {quoted[-1]}"
    return f"{len(quoted)} required keyword-only arguments: {listed}"


def signature_of(row: Row) -> inspect.Signature:
    """Return the signature of the method that a row describes."""

    def keyword(name: str, default: Any) -> inspect.Parameter:
        return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Any)

    empty = inspect.Parameter.empty
    first = [inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)]
    first += [
        inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=str)
        for name in row.places[-1:]
    ]
    keywords = [keyword(name, empty) for name in row.places[:-1]]
    keywords += [keyword(name, empty if name in row.required else NOT_GIVEN) for name in row.params]
    every = [keyword(name, NOT_GIVEN if name == "timeout" else None) for name in _EVERY_CALL]
    ours = [keyword(name, None) for name in _OURS if name not in row.params]
    return inspect.Signature([*first, *keywords, *every, *ours])


def doc_of(row: Row) -> str:
    """Return the docstring of the method that a row describes."""
    returns = f"{row.page}[{row.returns}]" if row.page else row.returns or "None"
    lines = [f"``{row.verb} {row.path}``; returns ``{returns}``."]
    if row.event:
        lines.append(f"With ``stream=True``: a stream of ``{row.event}``.")
    if row.deprecated:
        lines.append(f"Deprecated: {row.deprecated.rstrip('.')}.")
    return "\n\n".join(lines)
