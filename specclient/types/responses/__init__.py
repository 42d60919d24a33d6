"""Responses, their events and input, under the module path of the OpenAI client; loaded on first use.

What a type checker should know of them stands in ``__init__.pyi``.
"""

from __future__ import annotations

from typing import Any

from specclient.types import paths

__all__ = paths.names_of("responses")  # noqa: PLE0605  # a list of texts


def __getattr__(name: str) -> Any:
    return paths.find("responses", name)


def __dir__() -> list[str]:
    return __all__
