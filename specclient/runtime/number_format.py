"""Number formats for people: dollars, seconds and plain numbers, to three significant digits."""

from __future__ import annotations

from decimal import Decimal

__all__ = ["format_dollars", "format_duration", "format_number", "plain_decimal"]


def format_dollars(amount: Decimal) -> str:
    """Return an amount of dollars to three significant digits: ``$0.00042``."""
    return f"${plain_decimal(Decimal(f'{amount:.3g}') if amount else amount)}"


def format_duration(duration_s: float) -> str:
    """Return a duration in seconds to three significant digits: ``4.2 s``."""
    return f"{format_number(duration_s)} s"


def format_number(value: float) -> str:
    """Return a number to three significant digits, without an exponent: ``0.000042``."""
    text = f"{value:.3g}"
    return plain_decimal(Decimal(text)) if "e" in text else text


def plain_decimal(value: Decimal) -> str:
    """Return all digits of a number, without an exponent and without trailing zeros."""
    text = f"{value:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
