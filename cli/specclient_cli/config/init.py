"""``specclient config init``: write a commented specclient.toml."""

from __future__ import annotations

import os
from pathlib import Path

import click

from specclient.config import FILE_NAME
from specclient.errors import ConfigurationError
from specclient_cli.common.state import State, pass_state
from specclient_cli.config.template import TEMPLATE
from specclient_cli.config.toml_file import write_atomically


@click.command(name="init")
@click.option(
    "--path",
    type=click.Path(dir_okay=False, path_type=Path),
    help=f"File to write. Default: --config, else SPECCLIENT_CONFIG, else ./{FILE_NAME}.",
)
@click.option("--force", is_flag=True, help="Replace an existing file.")
@pass_state
def command(state: State, path: Path | None, force: bool) -> None:
    """Write a specclient.toml that explains every setting.

    All settings are commented out. The file is written atomically, and only its owner can read it, because it
    may later contain keys.

    \b
    Examples:
      specclient config init
      specclient config init --path ~/.config/specclient/specclient.toml

    Environment: SPECCLIENT_CONFIG.
    """
    named = path or state.config or Path(os.environ.get("SPECCLIENT_CONFIG") or FILE_NAME)
    target = named.expanduser()
    if target.exists() and not force:
        raise ConfigurationError(
            f"{target} already exists; use --force to replace it, or --path to choose another file"
        )
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(target, TEMPLATE)
    except OSError as error:
        raise ConfigurationError(
            f"cannot write {target}: {error.strerror or error}; choose another file with --path"
        ) from None
    click.echo(f"wrote {target}")
