"""httpx, imported when something of it is asked for, and without the command line that it brings.

A call over our own client needs nothing of it: its objects are for those who look at them, hand in a client
of theirs, or ask for what only httpx does (4 MB). Its `_main` module imports click, rich and Pygments for
`python -m httpx` wherever they are installed, as they are beside this package (5 MB more); that one is put
off until somebody calls `httpx.main`.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from specclient.runtime.forks import import_lock

if TYPE_CHECKING:
    import httpx

__all__ = ["httpx"]

_MAIN = "httpx._main"


class _Late(ModuleType):
    """Stands in for httpx until it is used; not in ``sys.modules``, where others look for the real one."""

    def __getattr__(self, name: str) -> Any:
        with import_lock:
            if "httpx" not in sys.modules:
                sys.modules[_MAIN] = _PutOff(_MAIN)
            return getattr(importlib.import_module("httpx"), name)


def main() -> None:
    """Run httpx's command line."""
    if isinstance(sys.modules.get(_MAIN), _PutOff):
        del sys.modules[_MAIN]
    importlib.import_module(_MAIN).main()


class _PutOff(ModuleType):
    """Stands in for the command line's module."""

    main = staticmethod(main)


if not TYPE_CHECKING:
    httpx = _Late("httpx")
