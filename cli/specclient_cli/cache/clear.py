"""``specclient cache clear``: remove all kept answers."""

from __future__ import annotations

import click

from specclient_cli.cache.opened import opened_store
from specclient_cli.common import render
from specclient_cli.common.confirmation import confirm
from specclient_cli.common.state import State, pass_state


@click.command(name="clear")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@pass_state
def command(state: State, /, *, yes: bool) -> None:
    """Remove all kept answers.

    Answers of all keys and programs that use the same store are removed; the ledger is not changed. The
    command asks for confirmation.

    \b
    Examples:
      specclient cache clear
      specclient cache clear --yes

    Environment: SPECCLIENT_CACHE (path or URL), SPECCLIENT_CONFIG.
    """
    with opened_store(state.settings()) as store:
        found = store.contents().entries
        if not found:
            render.print_paragraph(f"{store.name} keeps no answers.")
            return
        answers = "1 answer" if found == 1 else f"{found:,} answers"
        if not yes:
            confirm("remove", answers, f"Remove {answers} from {store.name}?")
        removed = store.clear()
        render.print_paragraph(
            f"Removed {'1 answer' if removed == 1 else f'{removed:,} answers'} from {store.name}."
        )
