"""Random response bodies for the types of the OpenAI client."""

from __future__ import annotations

import types
from random import Random
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import pydantic

_SCALARS: dict[Any, list[Any]] = {
    str: ["", "a", "größer", 'quo"te\n', "1700000000"],
    int: [0, 1, 2**40],
    float: [0, 1, 0.5, -2.25, 1e9],
    bool: [True, False],
    type(None): [None],
    object: [None, 1, "x", {"a": [1, {"b": None}]}],
    Any: [None, 1, "x", {"a": [1, {"b": None}]}],
}


def body_of(kind: Any, random: Random, *, unknown: bool = False, depth: int = 0) -> Any:
    """Return a random body of a type, with all required and some optional fields.

    The deeper the level, the fewer optional fields there are.

    Args:
        kind: a type as used in the OpenAI client's annotations.
        random: the source of random choices.
        unknown: whether to add a field that the type does not have.
        depth: the current level within the body.
    """
    origin, args = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return body_of(args[0], random, unknown=unknown, depth=depth)
    if origin in (Union, types.UnionType):
        return body_of(random.choice(args), random, unknown=unknown, depth=depth)
    if origin is Literal:
        return random.choice(args)
    if origin in (list, dict):
        values = [
            body_of(args[-1], random, unknown=unknown, depth=depth + 1) for _ in range(random.randrange(3))
        ]
        return values if origin is list else {f"key {i}": value for i, value in enumerate(values)}
    if kind in _SCALARS:
        return random.choice(_SCALARS[kind])
    assert issubclass(kind, pydantic.BaseModel), kind
    made: dict[str, Any] = {}
    for name, field in kind.model_fields.items():
        if field.is_required() or random.random() < 0.9 / (depth + 1):
            made[field.alias or name] = body_of(field.annotation, random, unknown=unknown, depth=depth + 1)
    return {**made, "x_vendor": random.choice(_SCALARS[Any])} if unknown else made
