"""The plan of a server: models, keys and limits, from the options of ``specclient serve``."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from pydantic import SecretStr

from specclient.client.async_client import AsyncOpenAI
from specclient.config import LocalModelSettings, Settings
from specclient.errors import ConfigurationError, LedgerError, NotFoundError
from specclient.providers import Endpoint
from specclient.types.model_kind import CHAT_KIND, EMBEDDING_KIND, ModelKind
from specclient_cli.common import parameter_types, render
from specclient_cli.common.state import State
from specclient_cli.config.checks import check_checkpoints

if TYPE_CHECKING:
    from specclient.routing.destinations import DestinationRegistry
    from specclient.serving import ServerPlan
    from specclient.serving.keys.key import StoredKey

KEY_VARIABLE = "SPECCLIENT_SERVER_KEY"


def make_plan(state: State, given: Any) -> ServerPlan:
    """Return the plan of the server.

    Args:
        state: the options of ``specclient`` itself.
        given: the options of ``specclient serve``.

    Raises:
        ConfigurationError: a model cannot be served, or other machines can reach the host and there is no
            key.
    """
    from specclient.serving import Limits, ServerPlan  # noqa: PLC0415 - an extra
    from specclient.serving.keys.authentication import is_loopback  # noqa: PLC0415
    from specclient.serving.workers import usage_meter_of  # noqa: PLC0415

    host, key = given["host"], (given["api_key"] or "").strip()  # a key from a file may end in a newline
    served = _served_models(state, given["models"], given["draft"])
    is_local = is_loopback(host)
    stored = _stored_keys(served.settings, needed=not key and not is_local)
    usable = [each for each in stored if each.status(datetime.now(UTC)) == "active"]
    if not key and not is_local and not usable:
        raise ConfigurationError(
            f"other machines can reach host {host!r}, and there is no key: set {KEY_VARIABLE}, make one with "
            "`specclient serve keys create NAME`, or omit --host to serve only this machine"
        )
    if (
        usage_meter_of(served.settings) is None
        and given["workers"] > 1
        and any(each.paced for each in usable)
    ):
        render.print_paragraph(
            "Each worker counts the rate limits of keys separately; set SPECCLIENT_REDIS_URL to share them.",
            render.DIM,
        )
    server = served.settings.server
    return ServerPlan(
        settings=served.settings,
        key=SecretStr(key) if key else None,
        keyed=bool(stored) or not is_local,
        models=served.models,
        limits=Limits(
            running=given["max_running"],
            waiting=given["max_waiting"],
            body_bytes=given["max_body"] * 2**20,
            bodies_bytes=server.bodies_bytes,
            json_values=server.json_values,
            sockets=server.sockets,
            head_s=server.head_s,
            idle_s=server.idle_s,
            grace_s=server.grace_s,
        ),
        preloaded=(served.models or (served.settings.default_model,)) if given["preload"] else (),
    )


def _stored_keys(settings: Settings, *, needed: bool) -> list[StoredKey]:
    """Return the stored keys; none if they cannot be read and are not needed."""
    from specclient.serving.keys.store import KeyStore  # noqa: PLC0415 - an extra

    store = KeyStore.of(settings.ledger)
    if store is None:
        return []
    try:
        return store.all()
    except LedgerError:
        if needed:
            raise
        return []
    finally:
        store.close()


def check_workers(plan: ServerPlan, *, each_loads: bool) -> None:
    """Check that several workers are possible.

    Args:
        plan: the plan of the server.
        each_loads: whether each worker may load its own copy of a local model.

    Raises:
        click.UsageError: they are not possible on this system, or would load several copies of a model.
    """
    if os.name == "nt":
        raise click.UsageError("--workers does not work on Windows, where processes cannot share a socket.")
    places = AsyncOpenAI(config=plan.settings).pipeline.destinations
    local = [name for name in (*plan.models, *plan.preloaded) if _loads_in_process(name, places)]
    if local and not each_loads:
        raise click.UsageError(
            f"each worker would load its own copy of {local[0]}: omit --workers (one engine batches all "
            "requests), or add --model-per-worker."
        )


def _loads_in_process(model: str, places: DestinationRegistry) -> bool:
    """Return whether each process that serves a model loads it; a server of its own is shared by all."""
    head, _, name = model.partition("/")
    return head in places.backend_names() and not isinstance(places.of_model(head, name), Endpoint)


@dataclass(frozen=True)
class ServedModels:
    """The models of a server.

    Attributes:
        settings: the settings, with a table for each checkpoint.
        models: routes; empty for all models.
    """

    settings: Settings
    models: tuple[str, ...]


def _route_of(model: str, places: DestinationRegistry) -> str | None:
    """Return the route that a name, or an alias, stands for; None for the name of a checkpoint."""
    target = places.resolve(model)
    if target == parameter_types.AUTO:
        return target
    if target == model and "/" in model:
        return model if places.known(model.partition("/")[0]) else None
    try:
        provider, name = places.split(model)
    except NotFoundError as error:
        raise click.UsageError(str(error)) from None
    return None if target == model and provider == places.default else f"{provider}/{name}"


def _kind_of(folder: Path) -> ModelKind:
    """Return the kind of the model in a checkpoint's folder."""
    from specclient_local.embedding.layout_reader import is_embedding_checkpoint  # noqa: PLC0415 - only for folders

    return EMBEDDING_KIND if is_embedding_checkpoint(folder) else CHAT_KIND


def _served_models(state: State, models: Sequence[str], draft: str | None) -> ServedModels:
    """Return the models given by ``--model`` and ``--draft``.

    Raises:
        click.UsageError: there is a draft, but not exactly one model.
        ConfigurationError: a name cannot be a checkpoint.
    """
    settings = state.settings()
    if draft is not None and len(models) != 1:
        raise click.UsageError("--draft requires exactly one --model.")
    places = AsyncOpenAI(config=settings).pipeline.destinations
    routes: list[str] = []
    tables = dict(settings.local.models)
    for model in models:
        route = _route_of(model, places)
        if draft is None and route is not None and not Path(model).exists():
            routes.append(route)
            continue
        if model.startswith("local/"):
            raise click.UsageError(
                f"{model} has its own draft; use --draft only with the folder or hub id of a checkpoint."
            )
        check_checkpoints(model, draft)
        folder = Path(model).expanduser()
        name = (folder.resolve() if folder.exists() else folder).name
        path = str(folder.resolve()) if folder.exists() else model
        tables[name] = LocalModelSettings(path=path, draft=draft, kind=_kind_of(folder))
        routes.append(f"local/{name}")
    local = settings.local.model_copy(update={"models": tables})
    return ServedModels(settings.model_copy(update={"local": local}), tuple(dict.fromkeys(routes)))
