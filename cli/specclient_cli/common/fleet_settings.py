"""Fleets of ``[fleets.NAME]`` tables, for the commands that use them and for ``specclient config check``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from specclient.config import FleetSettings

if TYPE_CHECKING:
    from specclient_local.fleets.fleet import Fleet


def fleet_of_settings(name: str, table: FleetSettings) -> Fleet:
    """Return the fleet of a table.

    Raises:
        CheckpointError, ConfigurationError: its values do not agree with each other or with its checkpoints.
    """
    from specclient_local.fleets.fleet import read_fleet  # noqa: PLC0415 - keeps completion quick

    values: dict[str, Any] = table.model_dump()
    values["pools"] = {pool: each.model_dump() for pool, each in table.named_pools.items()}
    return read_fleet(name, values)
