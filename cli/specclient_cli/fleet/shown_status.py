"""The state of fleets as tables, with the load on the nodes' metrics pages."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import click

from specclient_cli.common import render

Loads = Mapping[str, Mapping[str, float]]
"""Requests in progress by fleet and pool."""

_STYLES = {"HEALTHY": render.GOOD, "UNHEALTHY": render.BAD, "DEPLOY_FAILED": render.BAD}
_PAGE_S = 3.0
_MODELS = "LLMServer:"


def progress(line: str) -> None:
    """Print a line of progress on stderr."""
    click.echo(f"  {line[:200]}", err=True)


def show_changed_fleet(found: Mapping[str, Any], name: str, *, as_json: bool) -> None:
    """Print the state of one fleet after a change.

    Args:
        found: as the change returns it.
        name: the fleet's name.
        as_json: whether to print JSON instead of a table.
    """
    if as_json:
        click.echo(json.dumps(found["fleets"][name]))
    else:
        show_fleets(found["fleets"], {})


def show_fleets(fleets: Mapping[str, Any], loads: Loads) -> None:
    """Print a table of the pools of each fleet.

    Args:
        fleets: by name, as :mod:`specclient_local.fleets.ray_program` returns them.
        loads: requests in progress; a pool without a figure is unknown.
    """
    columns = [
        render.TableColumn("fleet"),
        render.TableColumn("pool"),
        render.TableColumn("state"),
        render.TableColumn("replicas"),
        render.TableColumn("requests", right=True),
    ]
    rows = []
    for name, fleet in fleets.items():
        for deployment, each in fleet["deployments"].items():
            if not deployment.startswith(_MODELS):
                continue
            pool = deployment.removeprefix(_MODELS)
            replicas = (
                ", ".join(f"{count} {state.lower()}" for state, count in each["replicas"].items()) or "0"
            )
            load = loads.get(name, {}).get(pool)
            requests = render.UNKNOWN if load is None else f"{load:.0f}"
            style = _STYLES.get(each["status"], "")
            cells = [name, pool, each["status"].lower(), replicas, requests]
            rows.append(render.TableRow(cells, style, each["message"][:200]))
    render.print_table(columns, rows)


def fleet_loads(pages: Sequence[str]) -> Loads:
    """Return the requests in progress by fleet and pool, from the metrics pages that can be read."""
    from urllib.request import urlopen  # noqa: PLC0415 - used only here

    from specclient.telemetry.ray_metrics import ray_loads  # noqa: PLC0415

    found: dict[str, dict[str, float]] = {}
    for url in pages:
        try:
            with urlopen(url, timeout=_PAGE_S) as page:  # noqa: S310 - an address of the cluster
                text = page.read().decode("utf-8", "replace")
        except OSError:
            continue
        for fleet, pools in ray_loads(text).items():
            for pool, count in pools.items():
                found.setdefault(fleet, {})[pool] = found.get(fleet, {}).get(pool, 0.0) + count
    return found
