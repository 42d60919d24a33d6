"""The methods of the installed OpenAI client's resources, by their path on a client."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator
from typing import Any

import openai


def methods(client: Any) -> Iterator[tuple[str, Any]]:
    """Yield the path and the function of every method of a client's resources."""
    for name in dir(type(client)):
        if isinstance(inspect.getattr_static(type(client), name), functools.cached_property):
            found = getattr(client, name)
            if type(found).__module__.startswith("openai.resources"):
                yield from _methods(found, name)


def _methods(resource: Any, path: str) -> Iterator[tuple[str, Any]]:
    cls = type(resource)
    for name in dir(cls):
        if name.startswith(("_", "with_")):
            continue
        found = inspect.getattr_static(cls, name)
        if isinstance(found, functools.cached_property | property):
            child = getattr(resource, name)
            if type(child).__module__.startswith("openai.resources"):
                yield from _methods(child, f"{path}.{name}")
        elif inspect.isfunction(found):
            yield f"{path}.{name}", found


def at(client: Any, path: str) -> Any:
    """Return the attribute at a dotted path of a client."""
    return functools.reduce(getattr, path.split("."), client)


def sync_client(base_url: str) -> openai.OpenAI:
    """Return an OpenAI client that does not retry."""
    return openai.OpenAI(api_key="sk-plain", admin_api_key="sk-admin", base_url=base_url, max_retries=0)


def async_client(base_url: str) -> openai.AsyncOpenAI:
    """Return an asynchronous OpenAI client that does not retry."""
    return openai.AsyncOpenAI(api_key="sk-plain", admin_api_key="sk-admin", base_url=base_url, max_retries=0)
