"""The configured fleets, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specclient.errors import ConfigurationError
from specclient_cli.common.fleet_settings import fleet_of_settings
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
    return fleet_of_settings(name, tables[name])
