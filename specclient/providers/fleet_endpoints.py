"""Endpoints of fleets: each ``[fleets.NAME]`` is a provider of this name, and its pools are its models.

A pool may have an address of its own; all others are at the fleet's, where Ray Serve finds them by the
model's name.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from pydantic import SecretStr

from specclient.config import FLEET_AUTO, FleetSettings, Settings
from specclient.errors import ConfigurationError
from specclient.providers.endpoint import Endpoint
from specclient.providers.presets.registry import PRESETS

__all__ = ["fleet_endpoint", "fleet_endpoints"]

#: The name of the backend of models in this process.
_LOCAL = "local"


def fleet_endpoints(
    settings: Settings, known: Collection[str], env: Mapping[str, str]
) -> dict[str, Endpoint]:
    """Return the endpoints of the configured fleets, by name.

    Args:
        settings: the configuration.
        known: the names of other providers.
        env: the environment, which holds the fleets' keys.

    Raises:
        ConfigurationError: a fleet has the name of another provider, or its URL is invalid.
    """
    found: dict[str, Endpoint] = {}
    for name, table in settings.fleets.items():
        where = f"{settings.source}: " if settings.source else ""
        if name in known or name in (_LOCAL, FLEET_AUTO):
            raise ConfigurationError(
                f"{where}fleets.{name} has the name of a provider; choose another name, since models are "
                f"called NAME/POOL by it"
            )
        try:
            found[name] = fleet_endpoint(name, table, env)
        except ConfigurationError as error:
            raise ConfigurationError(f"{where}fleets.{name}: {error}") from None
    return found


def fleet_endpoint(name: str, table: FleetSettings, env: Mapping[str, str]) -> Endpoint:
    """Return the endpoint of a fleet: vLLM's dialect and capabilities, at the address of Ray Serve's proxy.

    Raises:
        ConfigurationError: a URL is invalid.
    """
    base = PRESETS["vllm"].endpoint(base_url=f"{table.url.rstrip('/')}/{name}/v1")
    pools = {pool: each.urls[0] if each.urls else each.url for pool, each in table.named_pools.items()}
    for url in (
        *filter(None, pools.values()),
        *(url for each in table.named_pools.values() for url in each.urls),
    ):
        replace(base, base_url=url)  # checks it
    template = {} if table.path.startswith("bundled:") else {"*": table.path}
    variable = table.api_key_env
    return replace(
        base,
        name=name,
        key=SecretStr(env[variable]) if variable and env.get(variable) else None,
        key_env=(variable,) if variable else (),
        key_required=variable is not None,
        templates=template,
        pools=pools,
        base_url_env=None,
        start_hint=f"The fleet is not running: start it with `specclient fleet deploy {name}`.",
    )
