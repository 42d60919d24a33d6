"""The target and the drafts that the options of a command name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from specclient_local.request.params import Parameters, SamplingParams

from specclient.errors import ConfigurationError
from specclient.types.model_kind import EMBEDDING_KIND, wrong_kind
from specclient_cli.common.state import State

if TYPE_CHECKING:
    from specclient_local.engine.engine import Engine
    from specclient_local.loading.configured_models import ConfiguredModel

#: Options of :func:`.engine_options.loading_options` that are engine options of the same name.
_LOADING = (
    "heads",
    "layer_skip",
    "dtype",
    "draft_dtype",
    "device",
    "draft_device",
    "quantize",
    "draft_quantize",
    "draft_vocabulary",
    "context",
    "kv_cache",
    "cache_tokens",
)
#: Options that replace the drafting of a configured model.
_DRAFTING = ("drafts", "heads", "layer_skip")


@dataclass(frozen=True, slots=True)
class LocalModelPair:
    """A target and its drafts before they are loaded.

    Attributes:
        target: folder or hub id.
        drafts: folders or hub ids, in the order in which their tokens are tried.
        options: arguments of :meth:`specclient_local.engine.engine.Engine.load`.
        configured: the model of the configuration whose drafting is used; None if there is none, or if
            options name other drafts or heads.
    """

    target: str
    drafts: tuple[str, ...]
    options: Mapping[str, Any]
    configured: ConfiguredModel | None = None

    def load(self, slots: int, *, prefix_cache: bool = True) -> Engine:
        """Load the models.

        Args:
            slots: number of concurrent requests.
            prefix_cache: whether to reuse the KV cache of earlier prompts; False for measurements.

        Raises:
            CheckpointError, ConfigurationError: see :meth:`specclient_local.engine.engine.Engine.load`.
        """
        from specclient_local.engine.engine import Engine  # noqa: PLC0415 - imports torch

        options = {**self.options, "slots": slots, "prefix_cache": prefix_cache}
        return Engine.load(self.target, list(self.drafts) or None, **options)

    def with_defaults(self, params: Parameters) -> Parameters:
        """Return a request's parameters with the configured drafting where they set none."""
        if self.configured is None:
            return params
        filled = self.configured.with_defaults(SamplingParams(**params))
        drafting: Parameters = {
            "method": filled.method,
            "draft_length": filled.draft_length,
            "draft_tree": filled.draft_tree,
            "verification": filled.verification,
        }
        return {**params, **drafting}

    @property
    def values(self) -> dict[str, Any]:
        """Return the models as ``--json`` prints them."""
        return {"model": self.target, "drafts": list(self.drafts)}


def configured_model(state: State, name: object) -> ConfiguredModel | None:
    """Return the model of the configuration with this name; None where it is a folder or hub id.

    Raises:
        ConfigurationError: it is an embedding model, or the configuration is invalid.
    """
    from specclient_local.loading.configured_embeddings import is_embedding_table  # noqa: PLC0415 - as below
    from specclient_local.loading.configured_models import read_configured_models  # noqa: PLC0415 - checks what is installed

    tables, short = state.settings().local.model_dump(), str(name).removeprefix("local/")
    if is_embedding_table(tables["models"].get(short)):
        raise ConfigurationError(f"{wrong_kind(f'local/{short}', EMBEDDING_KIND)}.")
    return read_configured_models(tables).get(short)


def model_pair(state: State, given: Mapping[str, Any]) -> LocalModelPair:
    """Return the models given by the options of :func:`.engine_options.model_options`.

    Raises:
        ConfigurationError: the configuration is invalid.
    """
    settings = state.settings().local
    row = configured_model(state, given["model"])
    configured = {} if row is None else dict(row.load_options)
    drafts = configured.pop("draft", ())
    chosen = {name: given[name] for name in _LOADING if name in given}
    chosen["threads"] = given.get("threads") or settings.threads
    options = {**configured, **{name: value for name, value in chosen.items() if value not in (None, ())}}
    named = given["drafts"] or ([drafts] if isinstance(drafts, str) else drafts)
    if row is None:
        return LocalModelPair(given["model"], tuple(named), options)
    replaced = any(given.get(name) not in (None, ()) for name in _DRAFTING)
    return LocalModelPair(row.path, tuple(named), options, None if replaced else row)
