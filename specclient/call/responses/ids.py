"""Ids of responses and conversations: those made here contain a mark; those of providers do not.

A provider's ids are hexadecimal after their prefix, so the mark identifies the maker without a look-up.
"""

from __future__ import annotations

import os
from typing import Literal

__all__ = ["LOCAL_MARK", "is_local", "new_id"]

#: The mark after the prefix of an id that was made here.
LOCAL_MARK = "_local_"


def new_id(prefix: Literal["conv", "resp", "call", "fc", "fco", "item", "msg"]) -> str:
    """Return a new id; those of responses and conversations have the mark."""
    mark = LOCAL_MARK if prefix in ("conv", "resp") else "_"
    return f"{prefix}{mark}{os.urandom(16).hex()}"


def is_local(given: object) -> bool:
    """Return whether an id of a response or a conversation was made here."""
    return isinstance(given, str) and given.startswith((f"conv{LOCAL_MARK}", f"resp{LOCAL_MARK}"))
