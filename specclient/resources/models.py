"""The resource ``client.models``: list, retrieve and delete the models of an endpoint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from specclient.resources.base import Resource, build_request
from specclient.resources.table.index import rows_of
from specclient.resources.table.rows import method_of
from specclient.resources.table_resources import with_table_methods
from specclient.types.params import NOT_GIVEN, Omit
from specclient.types.request import Request

if TYPE_CHECKING:
    from specclient.types import Model, ModelDeleted
    from specclient.types.pages import AsyncPage, AsyncPaginator, SyncPage

ExtraHeaders = Mapping[str, str | Omit | None] | None


def _request(provider: str | None, **options: Any) -> Request:
    row = rows_of("models")["list"]
    return build_request(method_of(row, row.returns), options, provider=provider)


@with_table_methods("models", is_async=True)
class AsyncModels(Resource):
    """``client.models``."""

    if TYPE_CHECKING:

        async def retrieve(self, model: str, **options: Any) -> Model: ...
        async def delete(self, model: str, **options: Any) -> ModelDeleted: ...

    def list(
        self,
        *,
        provider: str | None = None,
        extra_headers: ExtraHeaders = None,
        extra_query: Mapping[str, Any] | None = None,
        extra_body: Mapping[str, Any] | None = None,
        timeout: Any = NOT_GIVEN,
        deadline_s: float | None = None,
    ) -> AsyncPaginator[AsyncPage[Model]]:
        """List the models of an endpoint; await the result, or iterate over it.

        Args:
            provider: the provider's name; None for the client's default endpoint.
            extra_headers, extra_query, extra_body: added to those of the client.
            timeout: seconds for one attempt; the client's timeout if not given.
            deadline_s: seconds for all attempts and the waits between them.
        """
        found: AsyncPaginator[AsyncPage[Model]] = self.caller.page(
            _request(
                provider,
                extra_headers=extra_headers,
                extra_query=extra_query,
                extra_body=extra_body,
                timeout=timeout,
                deadline_s=deadline_s,
            )
        )
        return found


@with_table_methods("models", is_async=False)
class Models(Resource):
    """``client.models`` of the synchronous client."""

    if TYPE_CHECKING:

        def retrieve(self, model: str, **options: Any) -> Model: ...
        def delete(self, model: str, **options: Any) -> ModelDeleted: ...

    def list(
        self,
        *,
        provider: str | None = None,
        extra_headers: ExtraHeaders = None,
        extra_query: Mapping[str, Any] | None = None,
        extra_body: Mapping[str, Any] | None = None,
        timeout: Any = NOT_GIVEN,
        deadline_s: float | None = None,
    ) -> SyncPage[Model]:
        """List the models of an endpoint; see :meth:`AsyncModels.list`."""
        page: SyncPage[Model] = self.caller.page(
            _request(
                provider,
                extra_headers=extra_headers,
                extra_query=extra_query,
                extra_body=extra_body,
                timeout=timeout,
                deadline_s=deadline_s,
            )
        )
        return page
