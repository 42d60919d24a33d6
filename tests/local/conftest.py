"""Fixtures of the engine's tests; ``tiny_models`` has the functions that they use."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_models import write_checkpoint

Checkpoint = Callable[..., Path]


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory) -> Checkpoint:
    """Write a checkpoint once per distinct set of arguments and return its folder."""
    made: dict[str, Path] = {}

    def make(**options: Any) -> Path:
        key = repr(sorted(options.items()))
        if key not in made:
            made[key] = write_checkpoint(tmp_path_factory.mktemp("checkpoint"), **options)
        return made[key]

    return make


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    """Use one thread: tiny models gain nothing from more, and results must not depend on their number."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
