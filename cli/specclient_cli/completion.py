"""``specclient completion``: the script for shell completion."""

from __future__ import annotations

import os
from pathlib import Path

import click
from click.shell_completion import get_completion_class

SHELLS = ("bash", "zsh", "fish")


@click.command(name="completion")
@click.argument("shell", type=click.Choice(SHELLS), required=False)
@click.pass_context
def command(ctx: click.Context, shell: str | None) -> None:
    """Print a script for shell completion.

    The script completes commands, options, models, policies, providers and configuration keys. SHELL defaults
    to the shell in $SHELL.

    \b
    Examples:
      specclient completion bash >> ~/.bashrc
      specclient completion zsh > "${fpath[1]}/_specclient"
      specclient completion fish > ~/.config/fish/completions/specclient.fish

    Environment: SHELL.
    """
    name = shell or Path(os.environ.get("SHELL", "")).name
    maker = get_completion_class(name) if name in SHELLS else None
    if maker is None:
        raise click.UsageError(f"SHELL is {name or 'unset'!r}; name one of {', '.join(SHELLS)}.")
    root = ctx.find_root()
    program = root.info_name or "specclient"
    click.echo(maker(root.command, {}, program, "_SPECCLIENT_COMPLETE").source())
