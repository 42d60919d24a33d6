"""``specclient fleet scale``: change the number of replicas of pools."""

from __future__ import annotations

import re

import click

from specclient_cli.common import options
from specclient_cli.common.state import State, pass_state
from specclient_cli.fleet.configured import configured_fleet
from specclient_cli.fleet.shown_status import progress, show_changed_fleet

_SIZE = re.compile(r"([a-z][a-z0-9-]*)=([1-9]\d{0,3})(?:-([1-9]\d{0,3}))?")


@click.command(name="scale")
@click.argument("name")
@click.argument("sizes", nargs=-1, required=True, metavar="POOL=N...")
@options.json_option
@pass_state
def command(state: State, /, name: str, sizes: tuple[str, ...], as_json: bool) -> None:
    """Change the number of replicas of pools.

    NAME is that of a [fleets.NAME] table. SIZES are POOL=N for a number of replicas, or POOL=N-M to let it
    follow the load between two numbers. They hold until the next `update`. Other pools keep the numbers that
    they have on the cluster. A fleet without pools has the pool 'main'.

    \b
    Examples:
      specclient fleet scale big short=2 long=1
      specclient fleet scale big main=1-4

    Environment: SPECCLIENT_CONFIG, RAY_ADDRESS, XDG_DATA_HOME.
    """
    from specclient_local.fleets.ray_cluster import FleetCluster  # noqa: PLC0415 - used only here

    fleet = configured_fleet(state, name)
    wanted = dict(map(_size, sizes))
    fleet.resized(wanted)  # refuses unknown pools before the cluster is asked
    cluster = FleetCluster(fleet)
    running = cluster.status()["fleets"].get(name)
    if running is not None:
        sizes_now = cluster.recorded_sizes(running["application"])
        known = {pool.name for pool in fleet.pools}
        fleet = fleet.resized({pool: size for pool, size in sizes_now.items() if pool in known})
    found = FleetCluster(fleet.resized(wanted)).update(progress)
    show_changed_fleet(found, name, as_json=as_json)


def _size(text: str) -> tuple[str, tuple[int, int]]:
    """Return a pool's name and its least and greatest number of replicas."""
    match = _SIZE.fullmatch(text)
    if match is None or (match[3] and int(match[3]) < int(match[2])):
        raise click.BadParameter(f"{text!r} is not a size; write POOL=N, such as main=2, or POOL=N-M.")
    return match[1], (int(match[2]), int(match[3] or match[2]))
