"""``specclient fleet logs``: the last lines of the replicas' logs."""

from __future__ import annotations

import json

import click

from specclient_cli.common import options, render
from specclient_cli.common.state import State, pass_state
from specclient_cli.fleet.configured import configured_fleet


@click.command(name="logs")
@click.argument("name")
@click.option(
    "--lines", type=click.IntRange(1, 10_000), default=20, show_default=True, help="Lines of each log."
)
@options.json_option
@pass_state
def command(state: State, /, name: str, lines: int, as_json: bool) -> None:
    """Print the last lines of the replicas' logs.

    NAME is that of a [fleets.NAME] table. The logs of all nodes of the cluster are read.

    \b
    Examples:
      specclient fleet logs big
      specclient fleet logs big --lines 200

    Environment: SPECCLIENT_CONFIG, RAY_ADDRESS, XDG_DATA_HOME, NO_COLOR.
    """
    from specclient_local.fleets.ray_cluster import FleetCluster  # noqa: PLC0415 - used only here

    found = FleetCluster(configured_fleet(state, name)).logs(lines)
    if as_json:
        click.echo(json.dumps(found))
        return
    if not found:
        click.echo(f"no replica of {name} has a log on the cluster")
    for file, text in found.items():
        render.print_paragraph(file, render.HEADING)
        click.echo(render.printable("\n".join(text)))
