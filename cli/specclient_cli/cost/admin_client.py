"""Clients for the administration APIs of vendors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specclient.providers.custom import Provider
from specclient.reports.fetched_bill import BilledBy
from specclient_cli.common.state import State

if TYPE_CHECKING:
    from specclient.client.sync_client import OpenAI

_ANTHROPIC_URL = "https://api.anthropic.com/v1"
#: The name of the endpoint with the administrator's key.
_ADMIN = "anthropic-admin"


def admin_client(state: State, vendor: BilledBy) -> OpenAI:
    """Return a client whose default provider is a vendor's API, with the key of an administrator.

    The key is read from ``OPENAI_ADMIN_KEY`` or ``ANTHROPIC_ADMIN_KEY``, and the address from
    ``[providers.NAME]``.

    Raises:
        ConfigurationError: the configuration is invalid.
    """
    from specclient.client.sync_client import OpenAI  # noqa: PLC0415 - keeps --help quick

    settings = state.settings()
    if vendor == "openai":
        return OpenAI(config=settings.model_copy(update={"default_provider": "openai"}))
    table = settings.providers.get("anthropic")
    admin = Provider(
        name=_ADMIN,
        base_url=(table.base_url if table is not None else None) or _ANTHROPIC_URL,
        key_env="ANTHROPIC_ADMIN_KEY",
        key_header="x-api-key",
        headers={"anthropic-version": "2023-06-01"},
    )
    return OpenAI(config=settings.model_copy(update={"default_provider": _ADMIN}), providers=[admin])
