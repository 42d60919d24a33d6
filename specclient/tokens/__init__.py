"""Tokens of texts, chats, tools and images: counted where they can be, else estimated and marked so.

Its modules load when the first count is made: most answers bring their own.
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
    with import_lock:  # it may be amid a call
        home = importlib.import_module(
            f"{__name__}.{'chat' if name.endswith(('messages', 'prompt')) else 'text'}"
        )
    return globals().setdefault(name, getattr(home, name))
