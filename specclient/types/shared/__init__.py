"""Types that several responses share, under the OpenAI client's module path; loaded on first use.

Type checkers read ``__init__.pyi``.
"""

from __future__ import annotations

from typing import Any

from specclient.types import paths

__all__ = paths.names_of("shared")  # noqa: PLE0605  # a list of texts


def __getattr__(name: str) -> Any:
    return paths.find("shared", name)


def __dir__() -> list[str]:
    return __all__
