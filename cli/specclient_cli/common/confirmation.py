"""The question before something is deleted."""

from __future__ import annotations

import sys

import click


def confirm(verb: str, what: str, question: str) -> None:
    """Ask a question, and go on only if it is affirmed.

    Args:
        verb, what: name the action, for the error without a terminal: "delete", "3 calls".
        question: in full.

    Raises:
        click.UsageError: standard input is no terminal; names ``--yes``.
        click.Abort: it was not affirmed.
    """
    if not sys.stdin.isatty():
        raise click.UsageError(
            f"this would {verb} {what}, and stdin is not a terminal to confirm it; add --yes."
        )
    click.confirm(question, abort=True)
