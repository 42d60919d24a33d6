"""``specclient fleet status``: the replicas of fleets and their load."""

from __future__ import annotations

import json

import click

from specclient_cli.common import options
from specclient_cli.common.state import State, pass_state
from specclient_cli.fleet.configured import configured_fleet
from specclient_cli.fleet.shown_status import fleet_loads, show_fleets


@click.command(name="status")
@click.argument("name")
@click.option("--all", "every", is_flag=True, help="Show all fleets on the cluster of NAME.")
@options.json_option
@pass_state
def command(state: State, /, name: str, every: bool, as_json: bool) -> None:
    """Show the replicas of fleets and their load.

    NAME is that of a [fleets.NAME] table. The number of requests is that of the metrics pages of the
    cluster's nodes. The exit code is 0 also if the fleet is not running.

    \b
    Examples:
      specclient fleet status big
      specclient fleet status big --all --json

    Environment: SPECCLIENT_CONFIG, RAY_ADDRESS, XDG_DATA_HOME, NO_COLOR.
    """
    from specclient_local.fleets.ray_cluster import FleetCluster  # noqa: PLC0415 - used only here

    found = FleetCluster(configured_fleet(state, name)).status(every=every)
    loads = fleet_loads(found["metrics"])
    if as_json:
        shown = {
            fleet: {**{k: v for k, v in each.items() if k != "application"}, "requests": loads.get(fleet, {})}
            for fleet, each in found["fleets"].items()
        }
        click.echo(json.dumps(shown))
        return
    if not found["fleets"]:
        click.echo(f"fleet {name} is not running; `specclient fleet deploy {name}` starts it")
        return
    show_fleets(found["fleets"], loads)
