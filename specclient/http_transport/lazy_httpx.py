"""The public names of httpx, imported on first use.

Calls over the package's own aiohttp client use none of them. Importing httpx takes 6 MB of resident memory.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from specclient.runtime.forks import import_lock

if TYPE_CHECKING:
    from httpx import *  # noqa: F403
else:

    def __getattr__(name: str) -> Any:
        with import_lock:
            return getattr(importlib.import_module("httpx"), name)
