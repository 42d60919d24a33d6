"""``specclient serve keys revoke``: revoke a key."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from specclient_cli.common.state import State, pass_state
from specclient_cli.serve.keys.key_store import open_store


@click.command(name="revoke")
@click.argument("key")
@pass_state
def command(state: State, /, key: str) -> None:
    """Revoke a key permanently.

    KEY is the name of the key, or its first characters. Running servers refuse it within seconds. Requests in
    flight are not interrupted.

    \b
    Examples:
      specclient serve keys revoke alice
      specclient serve keys revoke sk-sc-Ab3dE9

    Environment: SPECCLIENT_LEDGER (path or database URL of the keys), SPECCLIENT_CONFIG.
    """
    store = open_store(state.settings())
    try:
        revoked = store.revoke(key, datetime.now(UTC))
    finally:
        store.close()
    click.echo(f"revoked {revoked.name} ({revoked.prefix}…)")
