"""Query strings from nested parameters, and multipart forms from fields and files. Pure functions."""

from __future__ import annotations

import io
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import urlencode

import pydantic

#: A file part of a form: the field's name, and the content or ``(name, content, type, headers)``.
FormPart = tuple[str, Any]


class FileParts(list[FormPart]):
    """The file parts of a form. Always true, because a form without files is sent as multipart, too."""

    def __bool__(self) -> bool:
        return True


def pairs(params: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return parameters flattened as in OpenAI's API: ``a[b]=1``, ``c[]=2&c[]=3``; None is omitted."""
    return [pair for name, value in params.items() for pair in _flatten(name, value)]


def query_text(params: Mapping[str, Any]) -> str:
    """Return parameters as a URL's query string; see :func:`pairs`."""
    return urlencode(pairs(params))


def multipart(
    body: Mapping[str, Any], files: Collection[str]
) -> tuple[dict[str, str | list[str]], FileParts]:
    """Return a body as the ``data`` and ``files`` arguments of httpx.

    Args:
        body: the parameters by name.
        files: the names of those that hold files: bytes, an open binary file, a ``(name, content[, type[,
            headers]])`` tuple, or a list of these.

    Raises:
        RuntimeError: a file is none of these.
    """
    parts = FileParts()
    for name in body:
        if name in files:
            parts.extend(_parts(name, body[name]))
    data: dict[str, str | list[str]] = {}
    for name, value in pairs({name: value for name, value in body.items() if name not in files}):
        known = data.get(name)
        if known is None:
            data[name] = value
        elif isinstance(known, list):
            known.append(value)
        else:
            data[name] = [known, value]
    return data, parts


def _parts(name: str, value: Any) -> Iterator[FormPart]:
    many = isinstance(value, list)
    for content in value if many else [value]:
        key = f"{name}[]" if many else name
        if not isinstance(content, bytes | io.IOBase | tuple):
            raise RuntimeError(  # noqa: TRY004 - as the OpenAI client does
                f"Expected entry at `{key}` to be bytes, an io.IOBase instance, PathLike or a tuple but "
                f"received {type(content)} instead; open the file, or give its path as a pathlib.Path"
            )
        yield key, content


def _flatten(name: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, pydantic.BaseModel):
        value = value.model_dump(mode="json", by_alias=True, exclude_unset=True)
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _flatten(f"{name}[{key}]", inner)
    elif isinstance(value, Iterable) and not isinstance(value, str | bytes | bytearray):
        for inner in value:
            yield from _flatten(f"{name}[]", inner)
    elif isinstance(value, bool):
        yield name, "true" if value else "false"
    elif value is not None:
        yield name, str(value)
