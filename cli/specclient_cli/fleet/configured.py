"""The configured fleets, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from specclient.errors import ConfigurationError
from specclient_cli.common.state import State

if TYPE_CHECKING:
    from specclient_local.fleets.fleet import Fleet


def configured_fleet(state: State, name: str) -> Fleet:
    """Return the fleet of a ``[fleets.NAME]`` table.

    Raises:
        CheckpointError, ConfigurationError: there is no such table, or its values are invalid.
    """
    from specclient_local.fleets.fleet import read_fleet  # noqa: PLC0415 - keeps completion quick

    tables = state.settings().fleets
    if name not in tables:
        known = ", ".join(tables) or "none"
        raise ConfigurationError(
            f"no fleet {name!r} under [fleets.NAME] in specclient.toml; there are: {known}"
        )
    table = tables[name]
    values: dict[str, Any] = table.model_dump()
    values["pools"] = {pool: each.model_dump() for pool, each in table.named_pools.items()}
    return read_fleet(name, values)
