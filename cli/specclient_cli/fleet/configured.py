"""The configured fleets, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from specclient.config import FleetSettings
from specclient.errors import ConfigurationError
from specclient_cli.common.state import State

if TYPE_CHECKING:
    from specclient_local.fleets.fleet import Fleet


def configured_fleet(state: State, name: str) -> Fleet:
    """Return the fleet of a ``[fleets.NAME]`` table.

    Raises:
        CheckpointError, ConfigurationError: there is no such table, or its values are invalid.
    """
    tables = state.settings().fleets
    if name not in tables:
        known = f"configured are {', '.join(tables)}" if tables else f"add a table [fleets.{name}] with path"
        raise ConfigurationError(f"no fleet {name!r} under [fleets.NAME] in specclient.toml; {known}")
    return read_settings_of_fleet(name, tables[name])


def read_settings_of_fleet(name: str, table: FleetSettings) -> Fleet:
    """Return the fleet of a table, whose values agree with each other and with its checkpoints.

    Raises:
        CheckpointError, ConfigurationError: they do not.
    """
    from specclient_local.fleets.fleet import read_fleet  # noqa: PLC0415 - keeps completion quick

    values: dict[str, Any] = table.model_dump()
    values["pools"] = {pool: each.model_dump() for pool, each in table.named_pools.items()}
    return read_fleet(name, values)
