"""``specclient fleet stop``: stop a fleet."""

from __future__ import annotations

import click

from specclient_cli.common.state import State, pass_state
from specclient_cli.fleet.configured import configured_fleet


@click.command(name="stop")
@click.argument("name")
@click.option(
    "--force",
    is_flag=True,
    help="Stop an application of this name that specclient did not deploy, too, and end a local cluster "
    "that does not answer.",
)
@pass_state
def command(state: State, /, name: str, force: bool) -> None:
    """Stop a fleet.

    NAME is that of a [fleets.NAME] table. It is stopped in any state. A cluster on this machine ends with its
    last fleet.

    \b
    Examples:
      specclient fleet stop big
      specclient fleet stop big --force

    Environment: SPECCLIENT_CONFIG, RAY_ADDRESS, XDG_DATA_HOME.
    """
    from specclient_local.fleets.ray_cluster import FleetCluster  # noqa: PLC0415 - used only here

    stopped = FleetCluster(configured_fleet(state, name)).stop(force=force)
    click.echo(f"fleet {name} has been stopped" if stopped else f"fleet {name} was not running")
