"""The fields of a ``config.json``, read with their bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from specclient.errors import CheckpointError
from specclient_local.model.checkpoint_files import finite_number, shown, whole_number
from specclient_local.model.rope_config import MAX_POSITIONS, Rope, read_rope

MAX_LAYERS, MAX_HEADS, MAX_HEAD_DIM = 2**10, 2**14, 2**12
MAX_WIDTH, MAX_VOCABULARY, MAX_EXPERTS = 2**22, 2**24, 2**12
"""Bounds of a configuration, several times those of the largest published models."""

_LAYER_KINDS = ("sliding_attention", "full_attention")


@dataclass(frozen=True, slots=True)
class ConfigFields:
    """The content of a ``config.json``.

    Attributes:
        kind: its ``model_type``.
        raw: its fields.
        path: the file, for error messages.
        eos: the end token ids.
    """

    kind: str
    raw: Mapping[str, Any]
    path: Path
    eos: tuple[int, ...] = ()

    def number(self, name: str, most: int, default: int | None = None, *, least: int = 1) -> int:
        """Return a whole number.

        Args:
            name: the field.
            most: largest allowed number.
            default: returned if the field is missing or null; None if it must not be.
            least: smallest allowed number.

        Raises:
            KeyError: the field is missing and has no default.
            CheckpointError: it is no whole number or outside of the range.
        """
        if default is not None and self.raw.get(name) is None:
            return default
        return whole_number(self.raw, name, self.path, least, most)

    def real(self, name: str, default: float, *, least: float = 0.0) -> float:
        """Return a finite number, at least ``least``; the default if the field is missing or null."""
        return finite_number(self.raw, name, default, self.path, least=least)

    def cap(self, name: str, default: float | None = None) -> float | None:
        """Return a positive number, or None where the field is null."""
        value = self.raw.get(name, default)
        return None if value is None else finite_number({name: value}, name, 1.0, self.path)

    def flag(self, name: str, default: bool = False) -> bool:
        """Return a boolean; the default if the field is missing."""
        return bool(self.raw.get(name, default))

    def only(self, name: str, *allowed: Any) -> None:
        """Check that a field has one of some values; the first one is its default.

        Raises:
            CheckpointError: names the value and the first allowed one.
        """
        value = self.raw.get(name, allowed[0])
        if value not in allowed:
            raise CheckpointError(
                f"{self.path}: {name} is {shown(value)}; supported is {allowed[0]!r}. "
                f"Choose a checkpoint with it, or load this one with runner='hf'."
            )

    def refuse_partial_rotation(self) -> None:
        """Check that whole heads are rotated.

        Raises:
            CheckpointError: names the value.
        """
        table = self.raw.get("rope_parameters") or self.raw.get("rope_scaling") or {}
        share = table.get("partial_rotary_factor", self.raw.get("partial_rotary_factor"))
        if share not in (None, 1.0):
            raise CheckpointError(
                f"{self.path}: partial_rotary_factor is {shown(share)}; supported is 1.0. "
                "Load it with runner='hf'."
            )

    def rope(self, head_dim: int, layers: str | None = None) -> Rope:
        """Return the rotary embeddings; ``rotated`` is set if only a part of a head is rotated.

        Args:
            head_dim: D.
            layers: a kind of layers, such as ``sliding_attention``, if kinds have tables of their own.
        """
        raw = dict(self.raw)
        tables = raw.get("rope_parameters")
        if layers is not None and isinstance(tables, dict) and layers in tables:
            raw["rope_parameters"] = tables[layers] or {}
            raw.pop("rope_scaling", None)
        table = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
        share = table.get("partial_rotary_factor")
        if share is None:
            share = raw.get("partial_rotary_factor")
        share = finite_number({"share": share}, "share", 1.0, self.path)
        rotated = int(head_dim * share)
        if share > 1.0 or rotated < 2 or rotated % 2:
            raise CheckpointError(
                f"{self.path}: partial_rotary_factor is {share:g}, which makes {rotated} of {head_dim} "
                "elements of a head; it must make an even number of at least 2."
            )
        rope = read_rope(raw, rotated, self.path)
        return rope if rotated == head_dim else replace(rope, rotated=rotated)

    def window(self, default: int | None = None) -> int | None:
        """Return the width of sliding windows; None if the field is null."""
        value = self.raw.get("sliding_window", default)
        if value is None:
            return None
        return whole_number({"sliding_window": value}, "sliding_window", self.path, 1, MAX_POSITIONS)

    def sliding(self, layers: int, default: Sequence[bool]) -> tuple[bool, ...]:
        """Return for each layer whether it has a sliding window, by ``layer_types``.

        Args:
            layers: number of layers.
            default: used where the file has no ``layer_types``.
        """
        types = self.raw.get("layer_types")
        if not types:
            return tuple(default)
        if len(types) != layers or set(types) - set(_LAYER_KINDS):
            raise CheckpointError(
                f"{self.path}: layer_types is {shown(types)}; supported are {' and '.join(_LAYER_KINDS)}, "
                f"one for each of the {layers} layers."
            )
        return tuple(name == _LAYER_KINDS[0] for name in types)
