"""Turn the tables of a configuration into models that can be asked for: which checkpoint, and loaded how."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from specclient.errors import BadRequestError, CheckpointError, ConfigurationError
from specclient.types.backend import BackendModel
from specclient_local.loading.options import EngineOptions
from specclient_local.model.config import BUNDLED, read_config
from specclient_local.request.params import Method, SamplingParams

EngineKey = tuple[str, EngineOptions]
"""What engines are told apart by: rows that share it share one."""


DraftDefaults = tuple[Any, Any]
"""A draft length and a draft tree, as :class:`SamplingParams` has them."""


@dataclass(frozen=True, slots=True)
class ConfiguredModel:
    """A model that can be asked for.

    Attributes:
        path: folder or hub id of the target.
        options: how it is loaded, and the method of requests that name none.
        depth: how requests of that method draft that do not say: ``draft_length``, ``draft_tree``.
    """

    path: str
    options: EngineOptions = field(default_factory=EngineOptions)
    depth: DraftDefaults = (None, None)

    @property
    def key(self) -> EngineKey:
        """Of its engine: an engine can do every method that its drafts allow, whatever its rows prefer."""
        return self.path, replace(self.options, method="auto")

    @property
    def method(self) -> Method | None:
        """What a request gets that names none; None is for the engine to say, by what it has loaded."""
        return None if self.options.method == "auto" else self.options.method

    def drafted(self, params: SamplingParams) -> SamplingParams:
        """Fill in how a request is drafted, as far as it does not say itself."""
        if params.method is None and params.prediction is not None:
            return replace(params, method="prediction")
        silent = params.draft_length is None and params.draft_tree is None
        length, tree = self.depth if silent and params.method in (None, self.method) else _depth(params)
        return replace(params, method=params.method or self.method, draft_length=length, draft_tree=tree)

    @property
    def loading(self) -> dict[str, Any]:
        """What its engine is loaded with beside the path: the options that are not the default."""
        changed = _changed(self.key[1])
        if "draft" in changed:
            first, *others = changed["draft"]
            changed["draft"] = [first, *others] if others else first
        return changed

    def listed(self, name: str) -> BackendModel:
        """Return how the backend lists it; reads at most the ``config.json``."""
        draft, method = self.options.draft, self.method
        if method is None:
            own: Method = "plain" if self.options.layer_skip is None else "layer_skip"
            method = "union" if len(draft) > 1 else "draft" if draft else own
        others = _changed(replace(self.options, draft=(), method="auto"))
        return BackendModel(
            id=name,
            target=self.path,
            draft=" + ".join(draft) if draft and method in ("draft", "union") else None,
            method=method,
            context=self._context(),
            options=others,
        )

    def pair(self, method: str | None) -> str:
        """Return what ran, in short: the target, and what drafted for it by this method."""
        drafts = {"draft": self.options.draft[:1], "union": self.options.draft}.get(method or "", ())
        return "+".join(_short(path) for path in (self.path, *drafts))

    def _context(self) -> int | None:
        """Return the context without loading the model, or None where the checkpoint is not here."""
        if self.options.context is not None:
            return self.options.context
        try:
            return read_config(Path(self.path).expanduser()).context
        except CheckpointError:
            return None


def read_configured_models(settings: Mapping[str, Any]) -> dict[str, ConfiguredModel]:
    """Read the table of the local engine: the bundled pair, and the models it names.

    Args:
        settings: ``models`` (by name: ``path``, and what :class:`EngineOptions` has), and ``slots`` and
        ``threads``
            for those of them that name none; all optional.

    Raises:
        ConfigurationError: naming the model, the value and what is allowed.
    """
    common = {name: settings[name] for name in ("slots", "threads") if settings.get(name) is not None}
    pair = EngineOptions.read({**common, "draft": str(BUNDLED / "draft")})
    target = str(BUNDLED / "target")
    rows = {
        "demo": ConfiguredModel(target, pair),
        "demo-target": ConfiguredModel(target, replace(pair, method="plain")),
    }
    return rows | {name: _row(name, row, common) for name, row in (settings.get("models") or {}).items()}


def resolve_pair_name(model: str | Path, draft: Any) -> tuple[str | Path, Any]:
    """Return a target and its draft: the bundled ones where ``demo`` or ``local/demo`` is named."""
    if model not in ("demo", "local/demo") or Path(model).is_dir():
        return model, draft
    return BUNDLED / "target", BUNDLED / "draft" if draft is None else draft


def model_for_folder(path: str, like: ConfiguredModel) -> ConfiguredModel:
    """Return the row of a checkpoint folder that is asked for by its path: the target alone."""
    return ConfiguredModel(path, EngineOptions(slots=like.options.slots, threads=like.options.threads))


def _row(name: str, row: object, common: Mapping[str, Any]) -> ConfiguredModel:
    """Check a configured model; whether its folders hold one is seen when it is loaded."""
    where, known = f"local model {name!r}", [*(option.name for option in fields(EngineOptions)), *_DEPTH]
    if not isinstance(row, Mapping) or "path" not in row:
        raise ConfigurationError(
            f"{where} is {row!r}; it needs a table with path, and may have {', '.join(known)}."
        )
    given = {key: value for key, value in row.items() if key != "path" and value is not None}
    depth = {key: given.pop(key) for key in _DEPTH if key in given}
    unknown = [key for key in given if key not in known]
    if unknown:
        raise ConfigurationError(f"{where} has {unknown[0]!r}; allowed are path, {', '.join(known)}.")
    path = row["path"]
    if not isinstance(path, str) or not path:
        raise ConfigurationError(f"{where}: path is {path!r}; it names a folder or hub id.")
    try:
        checked = SamplingParams(**depth)
        return ConfiguredModel(path, EngineOptions.read({**common, **given}), _depth(checked))
    except (BadRequestError, ConfigurationError) as error:
        raise ConfigurationError(f"{where}: {error}") from None


_DEPTH = ("draft_length", "draft_tree")


def _depth(params: SamplingParams) -> DraftDefaults:
    return params.draft_length, params.draft_tree


def _changed(options: EngineOptions) -> dict[str, Any]:
    """Return the options that are not the default."""
    return {
        option.name: value
        for option in fields(EngineOptions)
        if (value := getattr(options, option.name)) != option.default
    }


def _short(path: str) -> str:
    """Return what tells a checkpoint from others: the last two parts of its path, or its hub id."""
    return "/".join(Path(path).parts[-2:])
