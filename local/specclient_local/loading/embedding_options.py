"""The validated options for loading an embedding model. This module does not import torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from specclient.errors import ConfigurationError
from specclient_local.loading.options import DEVICE_NAMES, is_device
from specclient_local.model.config import DTYPES
from specclient_local.request.validation import integer, optional


@dataclass(frozen=True, slots=True)
class EmbeddingOptions:
    """The options for loading an embedding model; validated on construction.

    Models with equal paths and options can share one embedder.

    Attributes:
        dtype: data type of the model's weights and computation: ``float32``, ``bfloat16`` or ``float16``.
            Pooling and the steps after it are in float32.
        device: ``auto`` (the first CUDA device, else the CPU), ``cpu``, ``cuda``, ``cuda:N`` or ``mps``.
        threads: torch threads while it computes; None is torch's setting.
        context: maximum tokens of an input, at most the checkpoint's maximum, which None means.

    Raises:
        ConfigurationError: naming the value and what is allowed.
    """

    dtype: str = "float32"
    device: str = "auto"
    threads: int | None = None
    context: int | None = None

    def __post_init__(self) -> None:
        checks = (
            ("dtype", self.dtype in DTYPES, f"are {', '.join(DTYPES)}"),
            ("device", is_device(self.device), f"are {', '.join(DEVICE_NAMES)}"),
            ("threads", optional(integer(1))(self.threads), "is None, or an integer of at least 1"),
            ("context", optional(integer(1))(self.context), "is None, or an integer of at least 1"),
        )
        for name, usable, allowed in checks:
            if not usable:
                raise ConfigurationError(f"{name} is {getattr(self, name)!r}; allowed {allowed}.")

    @property
    def changed(self) -> Mapping[str, Any]:
        """The options that differ from the defaults."""
        return {
            option.name: value
            for option in fields(self)
            if (value := getattr(self, option.name)) != option.default
        }
