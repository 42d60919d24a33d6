"""Cells of CSV files, escaped so that spreadsheets do not run them as formulas."""

from __future__ import annotations

import re
from typing import Any

__all__ = ["safe_cell"]

#: First characters with which spreadsheets begin a formula, and blanks that some of them skip before it
#: (https://owasp.org/www-community/attacks/CSV_Injection).
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def safe_cell(value: Any) -> Any:
    """Return a cell's value; a text that a spreadsheet would run as a formula gets a leading apostrophe.

    Names of models, tags and sessions come from requests, so they may hold ``=HYPERLINK(…)``. Numbers stay
    unchanged, including negative ones and amounts in text. Carriage returns become line feeds: the csv module
    does not quote them, so the text after one would begin a new row.
    """
    if not isinstance(value, str):
        return value
    text = value.replace("\r\n", "\n").replace("\r", "\n")
    return f"'{text}" if text.startswith(_FORMULA_STARTS) and not _NUMBER.fullmatch(text) else text
