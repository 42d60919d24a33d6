"""One engine of each model for the clients of a module: loading one takes as long as most of these tests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import anyio
import pytest
from specclient_local.api import backend as module
from specclient_local.api.backend import LocalBackend


class SharedBackend(LocalBackend):
    """A backend of several clients, which stays open when one of them closes."""

    async def aclose(self) -> None:
        """Leave the engines to the other clients."""

    async def close_engines(self) -> None:
        """Close the engines after the last client."""
        await super().aclose()


@pytest.fixture(scope="module", autouse=True)
def _shared_backends() -> Iterator[None]:
    """Give all clients with the same settings of local models the same backend."""
    made: dict[str, SharedBackend] = {}

    def create(settings: Mapping[str, Any]) -> SharedBackend:
        return made.setdefault(repr(settings), SharedBackend(settings))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "create", create)
        yield
    for backend in made.values():
        anyio.run(backend.close_engines)
