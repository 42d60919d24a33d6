"""``specclient models list``: the models that a provider serves."""

from __future__ import annotations

import json

import click

from specclient_cli.common import options, parameter_types
from specclient_cli.common.state import State, pass_state


@click.command(name="list")
@click.argument("provider", type=parameter_types.ProviderName())
@options.json_option
@pass_state
def command(state: State, provider: str, as_json: bool) -> None:
    """List the models that a provider serves.

    The names are requested from the provider and printed one per line. PROVIDER is the part of a model's name
    before the slash; `specclient models` lists the providers.

    \b
    Examples:
      specclient models list local
      specclient models list openai --json

    Environment: SPECCLIENT_CONFIG, and the provider's key.
    """
    with state.client() as client:
        found = client.models.list(provider=provider).data
    if as_json:
        click.echo(json.dumps([model.to_dict() for model in found]))
        return
    for model in found:
        click.echo(model.id if model.id.startswith(f"{provider}/") else f"{provider}/{model.id}")
