"""``specclient fleet deploy``: start a fleet."""

from __future__ import annotations

import click

from specclient_cli.common import options
from specclient_cli.common.state import State, pass_state
from specclient_cli.fleet.configured import configured_fleet
from specclient_cli.fleet.shown_status import progress, show_changed_fleet


@click.command(name="deploy")
@click.argument("name")
@options.json_option
@pass_state
def command(state: State, /, name: str, as_json: bool) -> None:
    """Start a fleet, and wait until it answers.

    NAME is that of a [fleets.NAME] table. Memory, resources of the cluster, vLLM in the replicas'
    environment, and the name are checked before anything is started. If a replica is not ready in time
    ('start_s'), all of the fleet is removed again, and the error has the last lines of its log. Without
    RAY_ADDRESS and 'address', a Ray cluster of this machine is started; it ends with its last fleet.

    \b
    Examples:
      specclient fleet deploy big
      RAY_ADDRESS=ray://head:10001 specclient fleet deploy big --json

    Environment: SPECCLIENT_CONFIG, RAY_ADDRESS, XDG_DATA_HOME, HF_TOKEN, HF_HOME.
    """
    from specclient_local.fleets.fleet_plan import check_memory, plan_fleet  # noqa: PLC0415 - used only here
    from specclient_local.fleets.ray_cluster import FleetCluster  # noqa: PLC0415

    fleet = configured_fleet(state, name)
    check_memory(plan_fleet(fleet))
    found = FleetCluster(fleet).deploy(progress)
    show_changed_fleet(found, name, as_json=as_json)
    if not as_json:
        click.echo(f"{name}/auto is served at {fleet.base_url}")
