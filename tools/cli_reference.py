"""Write the help of every command into docs/cli.md.

    python tools/cli_reference.py            # write the page
    python tools/cli_reference.py --check    # write nothing; fail if the page is not current

The page shows each help text as a terminal does, because its examples and tables depend on line breaks.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click
from specclient_cli.main import cli

PAGE = Path(__file__).parent.parent / "docs" / "cli.md"
MARK = "<!-- commands: written by tools/cli_reference.py -->\n"
SIZE: Final = {"max_content_width": 100, "terminal_width": 100}


def commands(command: click.Command, context: click.Context) -> Iterator[tuple[str, str]]:
    """Yield the path and the help text of a command and of its subcommands, in the order of the help."""
    yield context.command_path, command.get_help(context)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            subcommand = command.get_command(context, name)
            assert subcommand is not None
            yield from commands(subcommand, click.Context(subcommand, info_name=name, parent=context, **SIZE))


def page(text: str) -> str:
    """Return the page's text with the reference after ``MARK``."""
    head = text.partition(MARK)[0]
    context = click.Context(cli, info_name="specclient", help_option_names=["-h", "--help"], **SIZE)
    parts = [
        f"{'#' * min(path.count(' ') + 2, 4)} {path}\n\n```text\n{text}\n```\n"
        for path, text in commands(cli, context)
    ]
    return f"{head}{MARK}\n" + "\n".join(parts)


def main() -> None:
    """Write or check the page."""
    text = PAGE.read_text(encoding="utf-8")
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(page(text), encoding="utf-8")
    elif page(text) != text:
        sys.exit("docs/cli.md is not current: run python tools/cli_reference.py")


if __name__ == "__main__":
    main()
