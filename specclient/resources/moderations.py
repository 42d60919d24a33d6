"""The resource ``client.moderations``: classify texts and images as harmful or not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Unpack

from specclient.resources.base import Resource, build_request
from specclient.resources.signatures import with_signature
from specclient.resources.traced_methods import traceable
from specclient.types.create_params import ModerationCreateParams
from specclient.types.inference_methods import MODERATION

if TYPE_CHECKING:
    from specclient.types import ModerationCreateResponse

ModeratedInput = str | Iterable[str] | Iterable[Mapping[str, Any]]


class AsyncModerations(Resource):
    """``client.moderations``."""

    is_async, resource_name = True, "moderations"

    @traceable
    @with_signature("input", ModerationCreateParams)
    async def create(
        self, *, input: ModeratedInput, **params: Unpack[ModerationCreateParams]  # noqa: A002
    ) -> ModerationCreateResponse:  # fmt: skip
        """Classify whether texts or images may be harmful.

        Args:
            input: a text, several texts, or a list of text and image parts.
            params: see :class:`ModerationCreateParams`; without ``model``, the provider chooses the model.

        Raises:
            OpenAIError: see the tree in :mod:`specclient.errors`.
        """
        request = build_request(MODERATION, {"input": input, **params})
        answer: ModerationCreateResponse = await self.caller.call(request)
        return answer


class Moderations(Resource):
    """``client.moderations`` of the synchronous client."""

    resource_name = "moderations"

    @traceable
    @with_signature("input", ModerationCreateParams)
    def create(
        self, *, input: ModeratedInput, **params: Unpack[ModerationCreateParams]  # noqa: A002
    ) -> ModerationCreateResponse:  # fmt: skip
        """Classify whether texts or images may be harmful; see :meth:`AsyncModerations.create`."""
        answer: ModerationCreateResponse = self.caller.call(
            build_request(MODERATION, {"input": input, **params})
        )
        return answer
