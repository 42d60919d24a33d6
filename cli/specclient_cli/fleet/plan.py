"""``specclient fleet plan``: what a fleet needs, and files that deploy it with other tools."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from specclient_cli.common import options, render
from specclient_cli.common.state import State, pass_state
from specclient_cli.fleet.configured import configured_fleet
from specclient_cli.local.sizes import size_of

if TYPE_CHECKING:
    from specclient_local.fleets.fleet_plan import FleetPlan, PoolPlan

_RENDERINGS = ("serve", "kuberay", "kubernetes", "compose")


@click.command(name="plan")
@click.argument("name")
@click.option(
    "--render",
    "rendering",
    type=click.Choice(_RENDERINGS),
    help="Print a file in place of the plan: Ray Serve's configuration, a RayService of KubeRay, or vLLM "
    "servers and gateways with PostgreSQL and Redis for Kubernetes or Compose.",
)
@options.json_option
@pass_state
def command(state: State, /, name: str, rendering: str | None, as_json: bool) -> None:
    """Show memory, replicas and dollars an hour, or print files for other tools.

    NAME is that of a [fleets.NAME] table. Only the shapes of checkpoints are read. The exit code is 3 if a
    pool cannot hold the model, as far as 'memory' of a device is configured. Printed files contain no
    variables of 'env' that hold secrets by their name; each file says where they belong.

    \b
    Examples:
      specclient fleet plan big
      specclient fleet plan big --json
      specclient fleet plan big --render serve > serve.yaml
      specclient fleet plan big --render compose > compose.yaml

    Environment: SPECCLIENT_CONFIG, RAY_ADDRESS, HF_TOKEN, HF_HOME, NO_COLOR.
    """
    from specclient_local.fleets.fleet_plan import check_memory, plan_fleet  # noqa: PLC0415 - used only here

    plan = plan_fleet(configured_fleet(state, name))
    if rendering is not None:
        from specclient_local.fleets.rendering import rendered  # noqa: PLC0415 - used only here

        check_memory(plan)
        click.echo(rendered(plan.fleet, rendering), nl=False)
        return
    if as_json:
        click.echo(json.dumps(_values(plan)))
    else:
        _show(plan)
    check_memory(plan)


def _show(plan: FleetPlan) -> None:
    columns = [
        render.TableColumn("pool"),
        render.TableColumn("draft length", right=True),
        render.TableColumn("replicas", right=True),
        render.TableColumn("devices", right=True),
        render.TableColumn("weights", right=True, rank=1),
        render.TableColumn("requests of full length", right=True, rank=2),
        render.TableColumn("dollars an hour", right=True),
    ]
    render.print_table(columns, [_row(each) for each in plan.pools])
    fleet = plan.fleet
    devices = "GPUs" if fleet.gpus else "sets of processors"
    processors = "1 processor" if fleet.cpus == 1 else f"{fleet.cpus:g} processors"
    one = "1 GPU" if fleet.gpus else processors
    split = f"{fleet.devices} {devices}" if fleet.devices > 1 else one
    price = "" if plan.dollars is None else f", {_span(*plan.dollars, '${:.2f}')} an hour"
    render.print_paragraph(
        f"each replica: {split}; cluster: {fleet.address}{price}; name for calls: {fleet.name}/auto"
    )


def _row(each: PoolPlan) -> render.TableRow:
    memory = each.memory
    fitting = None if memory is None or each.available is None else memory.requests(each.available)
    cells = [
        each.pool.name,
        str(each.pool.draft_length),
        _span(each.pool.least, each.pool.most, "{}"),
        _span(*each.devices, "{}"),
        render.UNKNOWN if memory is None else size_of(memory.weights + memory.draft_weights),
        render.UNKNOWN if fitting is None else str(fitting),
        render.UNKNOWN if each.dollars is None else _span(*each.dollars, "{:.2f}"),
    ]
    return render.TableRow(cells, render.BAD if each.fits is False else "")


def _span(least: float, most: float, form: str) -> str:
    first, last = form.format(least), form.format(most)
    return first if first == last else f"{first}–{last}"


def _values(plan: FleetPlan) -> dict[str, Any]:
    return {
        "name": plan.fleet.name,
        "address": plan.fleet.address,
        "base_url": plan.fleet.base_url,
        "dollars_per_hour": plan.dollars,
        "pools": [
            {
                "name": each.pool.name,
                "draft_length": each.pool.draft_length,
                "replicas": [each.pool.least, each.pool.most],
                "devices": list(each.devices),
                "fits": each.fits,
                "memory_bytes": None if each.memory is None else each.memory.least,
                "available_bytes": each.available,
                "dollars_per_hour": each.dollars,
                "engine_arguments": plan.fleet.engine_arguments(each.pool),
            }
            for each in plan.pools
        ],
    }
