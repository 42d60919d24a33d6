"""``specclient local stop``: stop the servers of configured models."""

from __future__ import annotations

import click

from specclient.errors import EngineError
from specclient_cli.common.state import State, pass_state


@click.command(name="stop")
@click.argument("names", nargs=-1)
@click.option("--all", "stop_all", is_flag=True, help="Stop all servers that were started for models.")
@pass_state
def command(_: State, /, names: tuple[str, ...], stop_all: bool) -> None:
    """Stop the servers of configured models.

    NAMES are those of [local.models.NAME] tables, also of ones that were changed or removed since. Running
    calls fail. The server gets SIGTERM and, after 10 seconds, SIGKILL; the command returns when none of its
    processes is left. The next call starts it again.

    \b
    Examples:
      specclient local stop big
      specclient local stop --all

    Environment: XDG_DATA_HOME.
    """
    from specclient_local.managed.listing import list_servers, stop_servers  # noqa: PLC0415 - used only here

    if bool(names) == stop_all:
        raise click.UsageError("give the names of models, or --all.")
    wanted = {name.removeprefix("local/") for name in names}
    servers = [each for each in list_servers() if stop_all or each.state.name in wanted]
    if left := stop_servers(servers):
        raise EngineError(
            f"the server of local/{left[0].state.name} does not end; its supervisor is process "
            f"{left[0].state.supervisor}"
        )
    stopped = [each for each in servers if each.alive]
    for each in stopped:
        click.echo(f"stopped local/{each.state.name} ({each.state.title})")
    running = {each.state.name for each in stopped}
    for name in sorted(wanted - running):
        click.echo(f"local/{name} was not running")
    if stop_all and not stopped:
        click.echo("no server was running")
