"""``specclient fleet update``: replace a running fleet by what is configured now."""

from __future__ import annotations

import click

from specclient_cli.common import options
from specclient_cli.common.state import State, pass_state
from specclient_cli.fleet.configured import configured_fleet
from specclient_cli.fleet.shown_status import progress, show_changed_fleet


@click.command(name="update")
@click.argument("name")
@options.json_option
@pass_state
def command(state: State, /, name: str, as_json: bool) -> None:
    """Replace a running fleet by what is configured now, replica by replica.

    NAME is that of a [fleets.NAME] table. Replicas of pools whose configuration is unchanged stay. A pool
    with several replicas answers meanwhile. If the new replicas do not get ready, the former configuration is
    deployed again.

    \b
    Examples:
      specclient fleet update big

    Environment: SPECCLIENT_CONFIG, RAY_ADDRESS, XDG_DATA_HOME, HF_TOKEN, HF_HOME.
    """
    from specclient_local.fleets.fleet_plan import check_memory, plan_fleet  # noqa: PLC0415 - used only here
    from specclient_local.fleets.ray_cluster import FleetCluster  # noqa: PLC0415

    fleet = configured_fleet(state, name)
    check_memory(plan_fleet(fleet))
    found = FleetCluster(fleet).update(progress)
    show_changed_fleet(found, name, as_json=as_json)
