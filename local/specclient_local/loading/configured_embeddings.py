"""The embedding models that requests can name: those of kind ``embedding`` in the configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from specclient.errors import CheckpointError, ConfigurationError
from specclient.runtime.allowed_names import allowed_names
from specclient.types.backend import BackendModel
from specclient.types.model_kind import EMBEDDING_KIND
from specclient_local.embedding.layout import EmbeddingLayout
from specclient_local.embedding.layout_reader import read_layout
from specclient_local.loading.embedding_options import EmbeddingOptions
from specclient_local.model.checkpoint_files import read_json

EmbedderKey = tuple[str, EmbeddingOptions]
"""Identifies an embedder: configured models with the same key share one."""

#: Keys that the settings add to every model's table, with the values that are ignored for embedding models.
_SHARED_KEYS: Mapping[str, tuple[Any, ...]] = {
    "method": ("auto",),
    "draft": (None,),
    "env": ({},),
    "slots": (),
}


@dataclass(frozen=True, slots=True)
class ConfiguredEmbedding:
    """An embedding model that requests can name.

    Attributes:
        path: folder or hub id.
        options: the options for loading it.
        truncate: whether inputs beyond the context are cut if a request does not set it.
        prompt_name: name of the prompt for requests that name none; None is the checkpoint's default.
    """

    path: str
    options: EmbeddingOptions = field(default_factory=EmbeddingOptions)
    truncate: bool = False
    prompt_name: str | None = None

    @property
    def key(self) -> EmbedderKey:
        """The key of its embedder."""
        return self.path, self.options

    def listed(self, name: str) -> BackendModel:
        """Return the entry of the backend's model list; reads at most the checkpoint's JSON files."""
        layout = self._layout()
        return BackendModel(
            id=name,
            target=self.path,
            method=EMBEDDING_KIND,
            context=self._context(layout),
            options=self.options.changed,
            kind=EMBEDDING_KIND,
            dimensions=None if layout is None else layout.dimensions,
        )

    def _layout(self) -> EmbeddingLayout | None:
        """Return the checkpoint's modules; None if it is invalid or not on this machine."""
        try:
            return read_layout(Path(self.path).expanduser())
        except CheckpointError:
            return None

    def _context(self, layout: EmbeddingLayout | None) -> int | None:
        """Return the maximum tokens of an input, or None if it is unknown until the model is loaded."""
        if self.options.context is not None or layout is None:
            return self.options.context
        if layout.max_tokens is not None:
            return layout.max_tokens
        try:
            stated = read_json(layout.transformer / "config.json").get("max_position_embeddings")
        except CheckpointError:
            return None
        return stated if isinstance(stated, int) and stated > 0 else None


def read_configured_embeddings(settings: Mapping[str, Any]) -> dict[str, ConfiguredEmbedding]:
    """Return the embedding models of the ``local`` table, by name.

    Args:
        settings: ``models`` (by name: ``kind = "embedding"``, ``path``, ``truncate``, ``prompt_name`` and the
            fields of :class:`EmbeddingOptions`), and the default ``threads``; all optional.

    Raises:
        ConfigurationError: naming the model, the value and what is allowed.
    """
    models = settings.get("models") or {}
    return {
        name: _configured(name, table, settings.get("threads"))
        for name, table in models.items()
        if is_embedding_table(table)
    }


def is_embedding_table(table: object) -> bool:
    """Return whether a model's table is that of an embedding model."""
    return isinstance(table, Mapping) and table.get("kind") == EMBEDDING_KIND


def embedding_for_folder(path: str, like: EmbeddingOptions) -> ConfiguredEmbedding:
    """Return the embedding model in a checkpoint folder; ``threads`` as in ``like``."""
    return ConfiguredEmbedding(path, EmbeddingOptions(threads=like.threads))


def _configured(name: str, table: Mapping[str, Any], threads: int | None) -> ConfiguredEmbedding:
    where = f"local model {name!r} of kind {EMBEDDING_KIND!r}"
    own = ["truncate", "prompt_name", *(option.name for option in fields(EmbeddingOptions))]
    given = {
        key: value
        for key, value in table.items()
        if key not in ("kind", "path") and value is not None and value not in _SHARED_KEYS.get(key, ())
    }
    unknown = [key for key in given if key not in own]
    if unknown:
        known = ["kind", "path", *own]
        raise ConfigurationError(f"{where} has {unknown[0]!r}; {allowed_names(unknown[0], known)}.")
    path = table.get("path")
    if not isinstance(path, str) or not path:
        raise ConfigurationError(f"{where}: path is {path!r}; it must be a folder or hub id.")
    truncate, prompt_name = given.pop("truncate", False), given.pop("prompt_name", None)
    if not isinstance(truncate, bool):
        raise ConfigurationError(f"{where}: truncate is {truncate!r}; allowed are true and false.")
    if not isinstance(prompt_name, str | None) or prompt_name == "":
        raise ConfigurationError(f"{where}: prompt_name is {prompt_name!r}; it must be a prompt's name.")
    try:
        options = EmbeddingOptions(**{"threads": threads, **given})
    except ConfigurationError as error:
        raise ConfigurationError(f"{where}: {error}") from None
    return ConfiguredEmbedding(path, options, truncate, prompt_name)
