"""The options of ``specclient`` itself, and the settings and clients that commands make from them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from specclient.errors import OpenAIError

if TYPE_CHECKING:
    from specclient.client.async_client import AsyncOpenAI
    from specclient.client.sync_client import OpenAI
    from specclient.config import Settings
    from specclient.ledger.ledger import Ledger


@dataclass
class State:
    """The options of ``specclient`` itself.

    Attributes:
        config: the file given by ``--config``; None to search for one.
        debug: whether errors show their traceback.
    """

    config: Path | None = None
    debug: bool = False

    def settings(self) -> Settings:
        """Read the settings.

        Raises:
            ConfigurationError: a file or value is invalid.
        """
        from specclient.config import load  # noqa: PLC0415 - keeps --help and completion quick

        return load(self.config)

    def client(self, settings: Settings | None = None) -> OpenAI:
        """Return a client that sends calls. Close it, or use it as a context manager."""
        from specclient.client.sync_client import OpenAI  # noqa: PLC0415

        return OpenAI(config=settings or self.settings())

    def async_client(self, settings: Settings | None = None) -> AsyncOpenAI:
        """Return a client for its router, providers and ledger. It opens and sends nothing by itself."""
        from specclient.client.async_client import AsyncOpenAI  # noqa: PLC0415

        return AsyncOpenAI(config=settings or self.settings(), max_retries=0)

    def ledger(self) -> Ledger:
        """Return the ledger. It is opened on first use, and closed when the command ends."""
        from specclient.ledger.ledger import Ledger  # noqa: PLC0415

        ledger = Ledger(self.settings().ledger)
        context = click.get_current_context(silent=True)
        if context is not None:
            context.call_on_close(ledger.close)
        return ledger


pass_state = click.make_pass_decorator(State, ensure=True)


def known_settings(ctx: click.Context) -> Settings | None:
    """Return the settings for shell completion; None if they cannot be read."""
    try:
        return State(config=ctx.find_root().params.get("config")).settings()
    except OpenAIError:
        return None
