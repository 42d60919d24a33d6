"""Turn ``client.models.list()`` into what the default endpoint serves."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

from pydantic import Field

from specclient.pipeline import Pipeline
from specclient.resources.base import Runner
from specclient.types.base import WireModel
from specclient.types.model import Model


class ModelPage(WireModel):
    """The models of an endpoint; iterate over it, or read ``data``."""

    data: list[Model] = Field(default_factory=list)
    object: str = "list"

    def __iter__(self) -> Iterator[Model]:  # type: ignore[override]  # as the OpenAI client's pages do
        return iter(self.data)

    async def __aiter__(self) -> AsyncIterator[Model]:
        for model in self.data:
            yield model


class AsyncModels:
    """``client.models``."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline

    async def list(self, *, provider: str | None = None) -> ModelPage:
        """List the models of an endpoint.

        Args:
            provider: whose; the client's default endpoint if None.
        """
        return ModelPage(data=await self._pipeline.models(provider))


class Models:
    """``client.models`` of the synchronous client."""

    def __init__(self, pipeline: Pipeline, runner: Runner) -> None:
        self._async = AsyncModels(pipeline)
        self._runner = runner

    def list(self, *, provider: str | None = None) -> ModelPage:
        """List the models of an endpoint; see :meth:`AsyncModels.list`."""
        return self._runner.run(lambda: self._async.list(provider=provider))
