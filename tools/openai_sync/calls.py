"""The typed keyword arguments of the methods that have a hand-written resource class, for type checkers.

The types are wider than `openai`'s, so that code that works at run time passes a type checker: literal
strings become ``str``, as other providers accept other values, and a TypedDict becomes any mapping.
"""

from __future__ import annotations

import functools
import inspect
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import openai
import typing_extensions
from openai import NotGiven, Omit

#: By method: the name of the class of its keywords, and the keywords that are explicit in its signature.
CALLS: Final[Mapping[str, tuple[str, str]]] = {
    "completions.create": ("CompletionCreateParams", "model prompt stream"),
    "chat.completions.create": ("ChatCreateParams", "model messages stream"),
    "embeddings.create": ("EmbeddingCreateParams", "model input"),
    "moderations.create": ("ModerationCreateParams", "input"),
    "responses.create": ("ResponseCreateParams", ""),
}
_EVERY_CALL = frozenset({"extra_headers", "extra_query", "extra_body", "timeout"})
_REFERENCE = "https://platform.openai.com/docs/api-reference"


def calls() -> str:
    """Return the source of the keyword classes."""
    client = openai.OpenAI(api_key="key", base_url="http://nowhere.invalid")
    head = (
        "from __future__ import annotations\n\nfrom collections.abc import Iterable, Mapping, Sequence\n"
        "from typing import Any\n\nfrom specclient.types.params import CallOptions, Omittable\n"
    )
    classes = []
    for method, (name, by_name) in CALLS.items():
        function: Any = functools.reduce(getattr, method.split("."), client)
        fields = keywords(function)
        lines = [f"    {field}: {kind}" for field, kind in fields.items() if field not in by_name.split()]
        about = f'    """Keywords of ``{method}``; see {_REFERENCE}."""\n'
        classes.append("\n".join([f"class {name}(CallOptions, total=False):", about, *lines, ""]))
    return "\n".join([head, *classes])


def keywords(method: Callable[..., Any]) -> dict[str, str]:
    """Return the types of a method's keywords, sorted by name, without the keywords that every call has."""
    unwrapped = inspect.unwrap(method)
    types_by_name = {}
    for name, parameter in inspect.signature(method).parameters.items():
        if name not in _EVERY_CALL:
            kind = eval(parameter.annotation, unwrapped.__globals__)
            text = widened(kind)
            types_by_name[name] = "Any" if text == "Any" else f"Omittable[{text}]"
    return dict(sorted(types_by_name.items()))


def widened(kind: Any) -> str:
    """Return the source of a type that accepts the values of ``kind`` and similar ones."""
    options = [option for option in _options(kind) if option not in ("NotGiven", "Omit")]
    if "Any" in options:
        return "Any"
    ends = [option for option in options if option == "None"]
    return " | ".join(dict.fromkeys([option for option in options if option != "None"] + ends))


def _options(kind: Any) -> list[str]:
    """Return the sources of the members of a union; of any other type, its own source."""
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        return _options(parts[0])
    if origin in (typing.Union, types.UnionType):
        return [option for part in parts for option in _options(part)]
    if origin is typing.Literal:
        return list(dict.fromkeys(type(word).__name__ for word in parts))
    return [_plain(kind, origin, parts)]


def _plain(kind: Any, origin: Any, parts: tuple[Any, ...]) -> str:
    if kind in (NotGiven, Omit):
        return str(kind.__name__)
    if kind is type(None):
        return "None"
    if kind in (str, int, float, bool):
        return str(kind.__name__)
    if typing_extensions.is_typeddict(kind):
        return "Mapping[str, Any]"
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return f"Mapping[{widened(parts[0])}, {widened(parts[1])}]"
    if parts and _is_sequence(origin):
        inner = widened(parts[0])
        # Objects of a response may be sent back, so a list of mappings may contain other objects.
        return "Iterable[Any]" if "Mapping" in inner or inner == "Any" else f"Sequence[{inner}]"
    return "Any"


def _is_sequence(origin: Any) -> bool:
    name = getattr(origin, "__name__", "")
    return name == "SequenceNotStr" or (isinstance(origin, type) and issubclass(origin, Sequence | Iterable))
