"""``specclient local start``: start the server of a configured model."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from specclient.errors import ConfigurationError
from specclient_cli.common import options, render
from specclient_cli.common.state import State, pass_state

if TYPE_CHECKING:
    from specclient_local.managed.engine_server import EngineServer


@click.command(name="start")
@click.argument("name")
@options.json_option
@pass_state
def command(state: State, /, name: str, as_json: bool) -> None:
    """Start the server of a configured model, and wait until it answers.

    NAME is that of a [local.models.NAME] table with 'engine' or 'command'. The lines of the server's log are
    shown on stderr meanwhile. A server that runs already is left as it is. A call of local/NAME starts the
    server, too; this command does not wait for the back-off after failures.

    \b
    Examples:
      specclient local start big
      specclient local start big --json

    Environment: SPECCLIENT_CONFIG, XDG_DATA_HOME.
    """
    server = _server(state, name.removeprefix("local/"))
    found = server.start(lambda line: click.echo(f"  {line[:200]}", err=True))
    if as_json:
        from specclient_local.managed.engine_folder import state_values  # noqa: PLC0415 - used only here

        click.echo(json.dumps({**state_values(found), "base_url": found.base_url}))
        return
    click.echo(f"local/{found.name} is served by {found.title} (process {found.pid}) at {found.base_url}")
    stops = (
        f"stops after {found.keep_alive:g} s without a call"
        if found.keep_alive
        else "runs until it is stopped"
    )
    click.echo(f"  it {stops}; its log is {found.log}")
    if found.keyed is False:
        render.print_paragraph(
            "  It answers without its key, too, so every user of this machine can call it."
        )


def _server(state: State, name: str) -> EngineServer:
    """Return the server of a model.

    Raises:
        ConfigurationError: the configuration is invalid, or the model has no server of its own.
    """
    from specclient_local.loading.configured_models import read_configured_models  # noqa: PLC0415 - as below
    from specclient_local.managed.engine_server import EngineServer  # noqa: PLC0415 - keeps completion quick
    from specclient_local.managed.managed_models import read_managed_models  # noqa: PLC0415

    tables = state.settings().local.model_dump()
    models = read_configured_models(tables)
    found = read_managed_models(tables, models)
    if name not in found:
        known = ", ".join(found) or "none"
        there = f"; calls of local/{name} load it in their own process" if name in models else ""
        raise ConfigurationError(
            f"no server is configured for {name!r}{there}; models with engine or command under "
            f"[local.models.NAME] are: {known}"
        )
    return EngineServer(found[name])
