"""Token counts of texts, chats, tools and images. Counts that are not exact are marked as estimates.

The modules are loaded on the first count, because most responses report their own counts.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from specclient.runtime.forks import import_lock

if TYPE_CHECKING:
    from specclient.tokens.chat import count_messages, count_prompt
    from specclient.tokens.text import Encode, TokenCount, count_text, estimate

__all__ = ["Encode", "TokenCount", "count_messages", "count_prompt", "count_text", "estimate"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with import_lock:  # prevents a fork during the import
        home = importlib.import_module(
            f"{__name__}.{'chat' if name.endswith(('messages', 'prompt')) else 'text'}"
        )
    return globals().setdefault(name, getattr(home, name))
