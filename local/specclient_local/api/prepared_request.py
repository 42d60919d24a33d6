"""A request that is ready to run.

Its choices are queued in the engine a few at a time. Errors of the engine name the parameters that the caller
used.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from specclient.errors import BadRequestError
from specclient_local.api.openai_request.answer_format import ENGINE_FORMAT_PARAMETERS
from specclient_local.api.openai_request.logprob_bounds import LARGE, max_prompt_logprobs
from specclient_local.api.stream_merging import merge_streams
from specclient_local.loading.configured_models import ConfiguredModel
from specclient_local.request.params import SamplingParams
from specclient_local.request.validation import EmptyConstraintError

if TYPE_CHECKING:
    from specclient_local.api.openai_response.response import ResponseBuilder
    from specclient_local.engine.answer import Piece
    from specclient_local.engine.engine import Engine

#: Choices of a request that are queued in the engine besides those that hold slots, so that no slot is idle.
_CHOICES_AHEAD = 4


@dataclass(frozen=True, slots=True)
class PreparedRequest:
    """A request that is ready to run.

    Attributes:
        engine: runs it.
        configured: the model's configuration.
        builder: makes the response and its chunks.
        prompts: texts or token ids; each is answered ``builder.request.choices`` times.
        params: the parameters of each prompt's first choice.
        owner: see :class:`specclient.types.request.PerCallOptions`.
    """

    engine: Engine
    configured: ConfiguredModel
    builder: ResponseBuilder
    prompts: Sequence[str | list[int]]
    params: SamplingParams
    owner: str = ""

    @property
    def has_many_logprobs(self) -> bool:
        """Whether the prompts' log-probabilities are so many that the response is built in a thread."""
        return max_prompt_logprobs(self.builder.request, self.prompts, self.engine.context) > LARGE

    @property
    def window(self) -> int:
        """The number of choices in the engine at a time."""
        return self.engine.slots + _CHOICES_AHEAD

    def check_prompts(self) -> None:
        """Check the prompts that are queued later, so that an error is raised before the response begins.

        Raises:
            BadRequestError, ContextOverflowError: a prompt is invalid or too long.
        """
        for prompt in self.prompts[self.window // self.builder.request.choices :]:
            self.engine.check_prompt(prompt, **_keywords(self.params))

    async def pieces(self) -> AsyncGenerator[tuple[int, Piece], None]:
        """Run the request: yield pairs of a choice's index and its next piece, in order of arrival.

        Choice ``i`` of each prompt uses ``seed + i``. A choice is queued in the engine when few earlier ones
        are left, so that the memory of a request does not depend on the number of its choices.

        Raises:
            BadRequestError: an invalid parameter, under the name that the caller used; or parameters that
                allow no further token.
        """
        request = self.builder.request
        try:
            async with aclosing(merge_streams(self._streams(), self.window)) as pieces:
                async for indexed_piece in pieces:
                    yield indexed_piece
        except EmptyConstraintError as error:
            refused = BadRequestError(str(error))
            refused.param, refused.code = request.format_parameter, "no_token_allowed"
            raise refused from error
        except BadRequestError as error:
            name = request.format_parameter
            if name is None or error.param not in ENGINE_FORMAT_PARAMETERS:
                raise
            renamed = BadRequestError(str(error).replace(error.param, name, 1))
            renamed.param, renamed.code = name, error.code
            raise renamed from error

    def _streams(self) -> Iterator[AsyncGenerator[Piece, None]]:
        """Yield the stream of each choice, not started. A lock makes the choices enter the engine in
        order.
        """
        seed, turn = self.params.seed, asyncio.Lock()
        for prompt in self.prompts:
            for i in range(self.builder.request.choices):
                params = self.params if seed is None or not i else replace(self.params, seed=seed + i)
                yield self.engine.astream(prompt, turn=turn, checked=params, owner=self.owner)


def _keywords(params: SamplingParams) -> dict[str, Any]:
    return {field.name: getattr(params, field.name) for field in fields(params)}
