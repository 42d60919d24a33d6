"""The models that requests can name: the bundled pair and those of the configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from specclient.errors import BadRequestError, CheckpointError, ConfigurationError
from specclient.runtime.allowed_names import allowed_names
from specclient.types.backend import BackendModel
from specclient.types.model_kind import CHAT_KIND
from specclient_local.loading.configured_embeddings import is_embedding_table
from specclient_local.loading.options import EngineOptions
from specclient_local.model.config import BUNDLED, read_config, short_name
from specclient_local.request.params import Method, SamplingParams, Verification

EngineKey = tuple[str, EngineOptions]
"""Identifies an engine: configured models with the same key share one engine."""

DraftDefaults = tuple[Any, Any]
"""``draft_length`` and ``draft_tree`` of :class:`SamplingParams`."""

SERVER_KEYS = ("engine", "python", "command", "arguments", "env", "keep_alive", "start_s", "served_name")
"""Keys of a model's table that concern its server; :mod:`specclient_local.managed.managed_models` checks
them. The engine in this process ignores them: it can run the same pair.
"""


@dataclass(frozen=True, slots=True)
class ConfiguredModel:
    """A model that requests can name.

    Attributes:
        path: folder or hub id of the target.
        options: the options for loading it, and the default method of its requests.
        draft_defaults: ``draft_length`` and ``draft_tree`` of requests that use the default method and set
            neither.
        verification: ``verification`` of requests that do not set it.
        stated_dtype: the data type as the table states it; None if it states none.
        adapter: the adapter of requests that name none.
    """

    path: str
    options: EngineOptions = field(default_factory=EngineOptions)
    draft_defaults: DraftDefaults = (None, None)
    verification: Verification | None = None
    stated_dtype: str | None = None
    adapter: str | None = None

    @property
    def key(self) -> EngineKey:
        """The key of its engine. The method is no part of it, since one engine serves all methods."""
        return self.path, replace(self.options, method="auto")

    @property
    def method(self) -> Method | None:
        """The default method of requests; None leaves it to the engine, by the drafts it has loaded."""
        return None if self.options.method == "auto" else self.options.method

    def with_defaults(self, params: SamplingParams) -> SamplingParams:
        """Return a request's parameters with this model's drafting filled in where they set none."""
        if params.adapter is None and self.adapter is not None:
            params = replace(params, adapter=self.adapter)
        if params.method is None and params.prediction is not None:
            return replace(params, method="prediction")
        unset = params.draft_length is None and params.draft_tree is None
        use_defaults = unset and params.method in (None, self.method)
        length, tree = self.draft_defaults if use_defaults else _draft_defaults(params)
        return replace(
            params,
            method=params.method or self.method,
            draft_length=length,
            draft_tree=tree,
            verification=params.verification or self.verification,
        )

    @property
    def served_depth(self) -> int | None:
        """The draft length for a server that is started with this pair; None if none is set."""
        length = self.draft_defaults[0]
        return length if isinstance(length, int) and length > 0 else None

    @property
    def load_options(self) -> dict[str, Any]:
        """The keyword arguments of ``Engine.load``: the options that differ from the defaults."""
        changed = _changed(self.key[1])
        if "draft" in changed:
            first, *others = changed["draft"]
            changed["draft"] = [first, *others] if others else first
        return changed

    def listed(self, name: str) -> BackendModel:
        """Return the entry of the backend's model list; reads at most the ``config.json``."""
        draft, method = self.options.draft, self.method
        if method is None:
            without_draft: Method = "plain" if self.options.layer_skip is None else "layer_skip"
            method = "union" if len(draft) > 1 else "draft" if draft else without_draft
        others = _changed(replace(self.options, draft=(), method="auto"))
        return BackendModel(
            id=name,
            target=self.path,
            draft=" + ".join(draft) if draft and method in ("draft", "union") else None,
            method=method,
            context=self._context(),
            options=others,
        )

    def pair_name(self, method: str | None) -> str:
        """Return the short names of the target and of the drafts that this method uses, joined by ``+``."""
        drafts = {"draft": self.options.draft[:1], "union": self.options.draft}.get(method or "", ())
        return "+".join(map(short_name, (self.path, *drafts)))

    def _context(self) -> int | None:
        """Return the context in tokens, or None where the checkpoint is not on this machine."""
        if self.options.context is not None:
            return self.options.context
        try:
            return read_config(Path(self.path).expanduser()).context
        except (CheckpointError, ConfigurationError):  # also where the package for its format is missing
            return None


def read_configured_models(settings: Mapping[str, Any]) -> dict[str, ConfiguredModel]:
    """Return the bundled pair and the models of kind ``chat`` of the ``local`` table, by name.

    Args:
        settings: ``models`` (by name: ``path``, the fields of :class:`EngineOptions`, ``draft_length``,
            ``draft_tree`` and ``verification``), and the defaults ``slots`` and ``threads``; all optional. A
            model with adapters is also ``NAME:ADAPTER`` for each of them.

    Raises:
        ConfigurationError: naming the model, the value and what is allowed.
    """
    common = {name: settings[name] for name in ("slots", "threads") if settings.get(name) is not None}
    pair = EngineOptions.read({**common, "draft": str(BUNDLED / "draft")})
    target = str(BUNDLED / "target")
    bundled = {
        "demo": ConfiguredModel(target, pair),
        "demo-target": ConfiguredModel(target, replace(pair, method="plain")),
    }
    models = settings.get("models") or {}
    chat = {name: table for name, table in models.items() if not is_embedding_table(table)}
    configured = bundled | {name: _configured_model(name, table, common) for name, table in chat.items()}
    return configured | {
        f"{name}:{adapter}": replace(model, adapter=adapter)
        for name, model in configured.items()
        for adapter, _, _ in model.options.adapters
    }


def resolve_pair_name(model: str | Path, draft: Any) -> tuple[str | Path, Any]:
    """Return a target and its draft; ``demo`` and ``local/demo`` name the bundled pair."""
    if model not in ("demo", "local/demo") or Path(model).is_dir():
        return model, draft
    return BUNDLED / "target", BUNDLED / "draft" if draft is None else draft


def model_for_folder(path: str, like: ConfiguredModel) -> ConfiguredModel:
    """Return the model in a checkpoint folder, without a draft; ``slots`` and ``threads`` as in ``like``."""
    return ConfiguredModel(path, EngineOptions(slots=like.options.slots, threads=like.options.threads))


def _configured_model(name: str, table: object, common: Mapping[str, Any]) -> ConfiguredModel:
    """Validate a model's table; its folders are read only when it is loaded."""
    where = f"local model {name!r}"
    known = [*(option.name for option in fields(EngineOptions)), *_DRAFT_DEFAULTS, *SERVER_KEYS]
    if not isinstance(table, Mapping) or "path" not in table:
        raise ConfigurationError(
            f"{where} is {table!r}; it must be a table with path, and may have {', '.join(known)}."
        )
    kind = table.get("kind", CHAT_KIND)
    if kind != CHAT_KIND:
        raise ConfigurationError(f"{where}: kind is {kind!r}; allowed are 'chat' and 'embedding'.")
    given = {
        key: value
        for key, value in table.items()
        if key not in ("path", "kind", *SERVER_KEYS) and value is not None
    }
    draft_defaults = {key: given.pop(key) for key in _DRAFT_DEFAULTS if key in given}
    unknown = [key for key in given if key not in known]
    if unknown:
        raise ConfigurationError(
            f"{where} has {unknown[0]!r}; {allowed_names(unknown[0], ['path', *known])}."
        )
    served = [key for key in ("engine", "command") if table.get(key) is not None]
    if served and table.get("adapters"):
        raise ConfigurationError(
            f"{where} has adapters and {served[0]}; adapters are for the engine in this process. Name the "
            "server's own by its arguments."
        )
    path = table["path"]
    if not isinstance(path, str) or not path:
        raise ConfigurationError(f"{where}: path is {path!r}; it must be a folder or hub id.")
    try:
        params = SamplingParams(**draft_defaults)
        options = EngineOptions.read({**common, **given})
        return ConfiguredModel(
            path, options, _draft_defaults(params), params.verification, given.get("dtype")
        )
    except (BadRequestError, ConfigurationError) as error:
        raise ConfigurationError(f"{where}: {error}") from None


_DRAFT_DEFAULTS = ("draft_length", "draft_tree", "verification")


def _draft_defaults(params: SamplingParams) -> DraftDefaults:
    return params.draft_length, params.draft_tree


def _changed(options: EngineOptions) -> dict[str, Any]:
    """Return the options that differ from the defaults."""
    return {
        option.name: value
        for option in fields(EngineOptions)
        if (value := getattr(options, option.name)) != option.default
    }
