"""Fixtures of the embedding models' tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tiny_embeddings import write_embedding_checkpoint

EmbeddingCheckpoint = Callable[..., Path]


@pytest.fixture(scope="session")
def embedding_checkpoint(tmp_path_factory) -> EmbeddingCheckpoint:
    """Write a checkpoint once per distinct set of arguments and return its folder."""
    made: dict[str, Path] = {}

    def make(**options: Any) -> Path:
        key = repr(sorted(options.items()))
        if key not in made:
            made[key] = write_embedding_checkpoint(tmp_path_factory.mktemp("embedding"), **options)
        return made[key]

    return make
