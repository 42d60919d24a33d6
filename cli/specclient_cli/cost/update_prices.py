"""``specclient cost update-prices``: fetches the price catalogue."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime

import click

from specclient.errors import APIConnectionError
from specclient_cli.common import options, render
from specclient_cli.common.state import State, pass_state
from specclient_cli.cost.catalogue_format import catalogue_values, describe_catalogue


@click.command(name="update-prices")
@click.option("--url", help="URL of the catalogue. Default: the published data of genai-prices.")
@options.json_option
@pass_state
def command(_state: State, url: str | None, as_json: bool) -> None:
    """Fetch the current price catalogue.

    The catalogue is validated before it replaces the current one, which stays if the fetch fails. Calls keep
    the price of their own date. A later version of the package genai-prices overrides the fetched catalogue.

    \b
    Examples:
      specclient cost update-prices
      specclient cost update-prices --url https://mirror.example/prices.json

    Environment: SPECCLIENT_PRICES (the file; default: prices.json in the user's data folder).
    """
    from specclient.http_transport.download import download  # noqa: PLC0415
    from specclient.prices import catalogue  # noqa: PLC0415 - slow to import

    now = datetime.now(UTC)
    before = describe_catalogue(catalogue.saved_catalogue(os.environ), now)
    try:
        content = download(url or catalogue.catalogue_url())
    except APIConnectionError as error:
        raise APIConnectionError(message=f"{error}; the {before} stays in use") from None
    copy = catalogue.save_catalogue(content, fetched=now, env=os.environ)
    if as_json:
        click.echo(json.dumps(catalogue_values(copy)))
    else:
        render.print_paragraph(f"{copy.models:,} models in {copy.path}; before: {before}")
