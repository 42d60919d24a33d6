"""``specclient cost storage``: what vector stores cost for a day."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from specclient_cli.common import options, render
from specclient_cli.common.state import State, pass_state

if TYPE_CHECKING:
    from specclient.call.vector_storage import StoredBytes


@click.command(name="storage")
@click.argument("provider", required=False)
@options.tag_option("Tag of the row in the ledger; may be repeated.")
@options.json_option
@pass_state
def command(state: State, /, *, provider: str | None, tags: Sequence[tuple[str, str]], as_json: bool) -> None:
    """Book what vector stores cost for today.

    The stores of PROVIDER are listed, and their bytes beyond those that the provider stores free of charge
    become one row of the ledger: an estimate, as stores grow and shrink within a day. Run it once a day; on
    the same day (in UTC), a second run changes nothing. PROVIDER is the default provider if it is not given.

    \b
    Examples:
      specclient cost storage
      specclient cost storage openai --tag team=search

    Environment: SPECCLIENT_LEDGER (path or database URL), SPECCLIENT_CONFIG, the key of the provider.
    """
    from specclient.call.vector_storage import book_storage  # noqa: PLC0415 - slow to import

    async def book() -> StoredBytes:
        async with state.async_client() as client:
            return await book_storage(client.pipeline, provider, tags=dict(tags))

    found = asyncio.run(book())
    cost = found.call.cost
    if as_json:
        values = {
            "provider": found.provider,
            "day": found.day,
            "stores": found.stores,
            "bytes": found.bytes,
            "free_gb": found.free_gb,
            "cost": None if cost.total is None else f"{cost.total:f}",
            "source": cost.source,
        }
        click.echo(json.dumps(values))
        return
    size = "an unknown size" if found.bytes is None else f"{found.bytes / 2**30:,.3f} GB"
    free = f", of which {found.free_gb} GB is free" if found.free_gb else ""
    price = "unpriced" if cost.total is None else f"~${cost.total:.4f}"
    stores = "1 vector store" if found.stores == 1 else f"{found.stores:,} vector stores"
    render.print_paragraph(
        f"{found.provider}, {found.day}: {stores} of {size}{free}; {price} for the day ({cost.source})."
    )
