"""Tolerant validation: keeps single invalid values of a response raw instead of refusing the response."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import pydantic

T = TypeVar("T")

#: In an error's location: the next item is the tag of a union's member, not a step into the body.
TAGGED = "<tagged>"
#: In an error's location: the following items concern an object with a tag unknown to the union.
UNKNOWN = "<unknown>"

#: Error types of union members that do not apply to the object.
_OF_UNIONS = ("known_tag", "union_tag_not_found", "union_tag_invalid")
_SCALARS = (str, int, float, bool)
_OF_SHAPES = ("model_type", "model_attributes_type", "dict_type", "list_type")

Place = tuple[int | str, ...]


def keep_odd(
    validate: Callable[[Any], T],
    decode: Callable[[], Any],
    error: pydantic.ValidationError,
    vital: frozenset[tuple[str, ...]] = frozenset(),
) -> T:
    """Validate a body without its odd values, and then set those values on the object.

    A value is odd if it has the wrong type, or is null where null is not allowed. A null is set only on a
    field without a default, since the default is more useful.

    Args:
        validate: makes an object of a decoded body.
        decode: returns a new copy of the body, which is changed here.
        error: the error that ``validate`` raised for the body.
        vital: the fields where an object or a list may be neither odd nor in the place of another type.

    Raises:
        pydantic.ValidationError: ``error``, if it is not only about odd values.
    """
    problems = [problem for problem in error.errors(include_url=False) if problem["type"] not in _OF_UNIONS]
    if not problems or problems[0]["type"] == "json_invalid":
        raise error
    body = decode()
    if not isinstance(body, dict):
        raise error
    places: set[Place] = set()
    for problem in problems:
        place = tuple(_steps(body, problem["loc"]))
        if tuple(step for step in place if isinstance(step, str)) in vital and _grave(problem):
            raise error
        places.add(place)
    places = {place for place in places if not any(place[:end] in places for end in range(1, len(place)))}
    taken = {place: _take(body, place) for place in places if place}
    result = validate(body)
    for place, value in taken.items():
        _put(result, place, value)
    return result


def _grave(problem: Mapping[str, Any]) -> bool:
    """Return whether a problem is about an object or a list, not about a scalar or a null."""
    value = problem["input"]
    if value is None:
        return isinstance(problem["loc"][-1], int)  # a null in a list cannot be left out
    return not isinstance(value, _SCALARS) or problem["type"] in _OF_SHAPES


def _steps(body: Any, place: Place) -> Iterator[int | str]:
    """Yield the steps of ``place`` that lead into ``body``, up to the last field name.

    Other steps are names of union members. A list entry cannot be left out, so its whole list counts as odd.
    """
    steps: list[int | str] = []
    used = 0
    skip = False
    for step in place:
        if skip or step == TAGGED:
            skip = not skip
            continue
        if isinstance(body, dict) and step in body:
            steps.append(step)
            used = len(steps)
        elif isinstance(body, list) and isinstance(step, int) and step < len(body):
            steps.append(step)
        else:
            continue
        body = body[step]
    yield from steps[:used]


def _take(body: Any, place: Place) -> Any:
    for step in place[:-1]:
        body = body[step]
    return body.pop(place[-1], None)


def _put(target: Any, place: Place, value: Any) -> None:
    """Set the field at ``place`` in a validated object; a null only if the field has no default."""
    step: Any
    for step in place[:-1]:
        target = (
            target[step] if isinstance(target, list | dict) else getattr(target, _field(target, step), None)
        )
    step = place[-1]
    if isinstance(target, dict):
        target[step] = value
    elif isinstance(target, pydantic.BaseModel):
        name = _field(target, step)
        if value is None and getattr(target, name, None) is not None:
            return
        target.__dict__[name] = value
        target.__pydantic_fields_set__.add(name)


def _field(target: Any, step: int | str) -> str:
    """Return the attribute name for a key of the body."""
    fields = type(target).model_fields
    if step in fields:
        return str(step)
    return next((name for name, field in fields.items() if field.alias == step), str(step))
