"""``specclient local ps``: the servers that were started for configured models."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from specclient_cli.common import options, render
from specclient_cli.common.state import State, pass_state
from specclient_cli.local.sizes import size_of

if TYPE_CHECKING:
    from specclient_local.managed.listing import ListedServer


@dataclass(frozen=True, slots=True)
class ServerFigures:
    """The figures of a server's metrics; None where it reports none.

    Attributes:
        requests: running and waiting.
        acceptance: accepted / drafted tokens since its start.
    """

    requests: int | None = None
    acceptance: float | None = None


@click.command(name="ps")
@click.option("--all", "show_all", is_flag=True, help="Show servers that have ended, too.")
@options.json_option
@pass_state
def command(_: State, /, show_all: bool, as_json: bool) -> None:
    """List the servers that were started for configured models.

    They belong to all programs of the user. The number of requests and the acceptance rate are those of the
    server's metrics. A server that failed is shown until it is started again.

    \b
    Examples:
      specclient local ps
      specclient local ps --all --json

    Environment: XDG_DATA_HOME, NO_COLOR.
    """
    from specclient_local.managed.listing import list_servers  # noqa: PLC0415 - used only here

    servers = [each for each in list_servers() if show_all or each.state.phase != "stopped"]
    figures = [_figures(each) for each in servers]
    if as_json:
        click.echo(json.dumps([_values(each, found) for each, found in zip(servers, figures, strict=True)]))
        return
    if not servers:
        click.echo("no server is running; `specclient local start NAME`, or a call of local/NAME, starts one")
        return
    columns = [
        render.TableColumn("name"),
        render.TableColumn("engine"),
        render.TableColumn("state"),
        render.TableColumn("pid", right=True, rank=2),
        render.TableColumn("port", right=True, rank=2),
        render.TableColumn("memory", right=True, rank=1),
        render.TableColumn("requests", right=True, rank=1),
        render.TableColumn("acceptance", right=True, rank=1),
    ]
    styles = {"ready": render.GOOD, "failed": render.BAD}
    render.print_table(
        columns,
        [
            render.TableRow(_cells(each, found), styles.get(each.state.phase, ""), each.state.error)
            for each, found in zip(servers, figures, strict=True)
        ],
    )


def _figures(server: ListedServer) -> ServerFigures:
    """Read a running server's metrics."""
    if not server.alive or server.state.phase != "ready":
        return ServerFigures()
    from specclient_local.managed.readiness import get  # noqa: PLC0415 - used only here

    from specclient.routing.learn.server_load import read_load  # noqa: PLC0415
    from specclient.telemetry.server_metrics import metrics_url  # noqa: PLC0415

    path = metrics_url(server.state.base_url).partition(f":{server.state.port}")[2]
    page = get(server.state.port, path, server.state.key)
    if page is None or page.status != 200:
        return ServerFigures()
    reading = read_load(page.body.decode("utf-8", "replace"))
    if reading is None:
        return ServerFigures()
    accepted, drafted, _ = reading.counted
    rate = reading.load.acceptance_rate
    if rate is None and accepted is not None and drafted:
        rate = accepted / drafted
    return ServerFigures(int(reading.load.running + reading.load.waiting), rate)


def _cells(server: ListedServer, figures: ServerFigures) -> list[str]:
    state = server.state
    return [
        state.name,
        state.title,
        state.phase,
        str(state.pid) if state.pid else render.UNKNOWN,
        str(state.port) if state.pid else render.UNKNOWN,
        render.UNKNOWN if server.memory is None else size_of(server.memory),
        render.UNKNOWN if figures.requests is None else str(figures.requests),
        render.UNKNOWN if figures.acceptance is None else f"{figures.acceptance:.2f}",
    ]


def _values(server: ListedServer, figures: ServerFigures) -> dict[str, Any]:
    from specclient_local.managed.engine_folder import state_values  # noqa: PLC0415 - used only here

    return {
        **state_values(server.state),
        "memory_bytes": server.memory,
        "idle_s": server.idle_s,
        "requests": figures.requests,
        "acceptance_rate": figures.acceptance,
    }
