"""httpx, without the command line that it brings.

`import httpx` imports click, rich and Pygments for `python -m httpx` wherever they are installed, as they
are beside this package: 5 MB and a quarter of its import time. Its `_main` module is put off until somebody
calls `httpx.main`.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

_MAIN = "httpx._main"


def main() -> None:
    """Run httpx's command line."""
    if isinstance(sys.modules.get(_MAIN), _PutOff):
        del sys.modules[_MAIN]
    importlib.import_module(_MAIN).main()


class _PutOff(ModuleType):
    """Stands in for the command line's module."""

    main = staticmethod(main)


if "httpx" not in sys.modules:
    sys.modules[_MAIN] = _PutOff(_MAIN)

import httpx  # noqa: E402

__all__ = ["httpx"]
