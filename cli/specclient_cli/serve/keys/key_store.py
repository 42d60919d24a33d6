"""The stored keys of a server, as the commands of ``serve keys`` use them."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from specclient.errors import ConfigurationError, LedgerError

if TYPE_CHECKING:
    from specclient.config import Settings
    from specclient.serving.keys.key import StoredKey
    from specclient.serving.keys.store import KeyStore

#: Packages of the extra ``server``, which the server needs.
NEEDED = ("httptools", "prometheus_client", "starlette", "uvicorn")


def check_installed() -> None:
    """Raise ConfigurationError if the server's packages are not installed."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise ConfigurationError(
            f"the server is not installed ({', '.join(missing)} missing): pip install 'specclient[server]'"
        )


def open_store(settings: Settings) -> KeyStore:
    """Return the store of the keys; close it after use.

    Raises:
        ConfigurationError: the server is not installed.
        LedgerError: the ledger is off.
    """
    check_installed()
    from specclient.serving.keys.store import KeyStore  # noqa: PLC0415 - an extra

    store = KeyStore.of(settings.ledger)
    if store is None:
        raise LedgerError(
            "keys are stored in the ledger, which is off; set SPECCLIENT_LEDGER to a file or a database URL"
        )
    return store


def key_values(key: StoredKey, spent: int | None) -> dict[str, Any]:
    """Return a key as ``--json`` prints it.

    Args:
        key: the stored key.
        spent: nano-dollars spent in the current period; None if unknown.
    """

    def dollars(nano: int | None) -> str | None:
        return None if nano is None else f"{Decimal(nano).scaleb(-9):f}"

    times = {name: getattr(key, name) for name in ("created_at", "expires_at", "revoked_at", "used_at")}
    return {
        "name": key.name,
        "prefix": key.prefix,
        "status": key.status(datetime.now(UTC)),
        "budget_usd": dollars(key.budget_nano),
        "spent_usd": dollars(spent),
        "period": None if key.budget_nano is None else key.period,
        "requests_per_minute": key.requests_per_minute,
        "tokens_per_minute": key.tokens_per_minute,
        "models": list(key.models),
        "tags": dict(key.tags),
        "aliases": dict(key.aliases),
        **{name: None if at is None else at.isoformat() for name, at in times.items()},
    }
