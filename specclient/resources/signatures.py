"""Argument binding, signatures and docstrings of the methods in the endpoint table."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

from specclient.resources.base import unexpected_argument
from specclient.resources.table.rows import Row
from specclient.types.params import NOT_GIVEN, CallOptions

F = TypeVar("F", bound=Callable[..., Any])

_EMPTY: Final = inspect.Parameter.empty
#: The keyword arguments of every method, in the order of the signature.
_EVERY_CALL: Final = ("extra_headers", "extra_query", "extra_body", "timeout")
_OURS: Final = tuple(name for name in CallOptions.__annotations__ if name not in _EVERY_CALL)
_DEPRECATED_FRAMES = 4  # from the warning up to the user's call


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


class LazySignature(inspect.Signature):
    """A signature that is made on first use, because most programs look at none.

    Args:
        make: returns the signature.
    """

    __slots__ = ("_made", "_make")

    def __init__(self, make: Callable[[], inspect.Signature]) -> None:
        self._make = make
        self._made: inspect.Signature | None = None

    def _signature(self) -> inspect.Signature:
        if self._made is None:
            self._made = self._make()
        return self._made

    @property
    def _parameters(self) -> Mapping[str, inspect.Parameter]:
        return self._signature().parameters

    @property
    def _return_annotation(self) -> Any:
        return self._signature().return_annotation

    def replace(self, **changes: Any) -> inspect.Signature:  # type: ignore[override]
        """Return a signature with other parameters; :mod:`inspect` leaves ``self`` out in this way."""
        return self._signature().replace(**changes)

    __replace__ = replace  # type: ignore[assignment]

    def __reduce__(self) -> Any:
        return self._signature().__reduce__()


def with_signature(required: str, params: type, *, adds: str = "", drops: str = "") -> Callable[[F], F]:
    """Return a decorator that lets :mod:`inspect` see the keywords of a method that is written by hand.

    Args:
        required: the names of required keywords.
        params: a ``TypedDict`` with the others.
        adds, drops: names of keywords that ``params`` lacks, or that the method does not have.
    """

    def make() -> inspect.Signature:
        names = {*params.__annotations__, *adds.split()} - {*required.split(), *drops.split(), *_OURS}
        optional = sorted(names - set(_EVERY_CALL))
        self = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        keywords = [_keyword(name) for name in required.split()]
        keywords += [_keyword(name, NOT_GIVEN) for name in optional]
        return inspect.Signature([self, *keywords, *_call_options(_OURS)])

    def decorate(method: F) -> F:
        vars(method)["__signature__"] = LazySignature(make)
        return method

    return decorate


def signature_of(row: Row) -> inspect.Signature:
    """Return the signature of the method that a row describes."""
    first = [inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)]
    first += [
        inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=str)
        for name in row.places[-1:]
    ]
    keywords = [_keyword(name) for name in row.places[:-1]]
    keywords += [_keyword(name, _EMPTY if name in row.required else NOT_GIVEN) for name in row.params]
    ours = [name for name in _OURS if name not in row.params]
    return inspect.Signature([*first, *keywords, *_call_options(ours)])


def _keyword(name: str, default: Any = _EMPTY) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Any)


def _call_options(ours: Iterable[str]) -> list[inspect.Parameter]:
    """Return the keywords of every call, those of the `openai` package and then this package's own."""
    every = [_keyword(name, NOT_GIVEN if name == "timeout" else None) for name in _EVERY_CALL]
    return every + [_keyword(name, None) for name in ours]


def doc_of(row: Row) -> str:
    """Return the docstring of the method that a row describes."""
    returns = f"{row.page}[{row.returns}]" if row.page else row.returns or "None"
    lines = [f"``{row.verb} {row.path}``; returns ``{returns}``."]
    if row.event:
        lines.append(f"With ``stream=True``: a stream of ``{row.event}``.")
    if row.deprecated:
        lines.append(f"Deprecated: {row.deprecated.rstrip('.')}.")
    return "\n\n".join(lines)
