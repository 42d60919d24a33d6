"""The inputs and the output of a recorded round: a table of integers each, with a row for each slot.

A row of inputs holds a request's slot, the position of its last token, its sampling parameters, its last
tokens, given drafts and random numbers. Real numbers travel as the bits of integers, so that one copy takes
all of them to the device.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from specclient_local.model.cuda_graphs.device_verify import DraftTensors, SamplingTensors
from specclient_local.request.params import SamplingParams

INTEGERS = 6
"""Integers of a request in the input, before its last tokens and its drafts: slot, position of the last
token, depth, top-k, whether its chain is verified as a block, number of tokens that may still follow."""

REALS = 2
"""Real numbers of a request in the input, before the random numbers: temperature, top-p."""

_NO_TOP_K = 1 << 62
"""The top-k that keeps every token of any vocabulary; fits a 64-bit integer."""

RESULT_FIELDS = 6
"""Integers in the output after the drafted tokens: depth, accepted, token, random numbers used, finite,
position of the token before the drafts."""


@dataclass(frozen=True, slots=True)
class DeviceRoundRequest:
    """The input of a round for one request.

    Attributes:
        slot: cache slot. The target's cache holds all tokens but the last; the draft's may lack the last two.
        tokens: the last tokens, as many as the draft reads, or all if there are fewer.
        start: position of the last token.
        depth: number of drafted tokens to verify.
        params: temperature, top-p, top-k and the rule of verification are used.
        given: the drafted tokens, or None if the round's draft drafts them.
        uniform: the request's next ``2 K + 1`` random numbers; K is the largest depth in the round. Twice as
            many if the round continues another one.
        left: number of tokens that may still follow; drafts of the next rounds end there.
        continues: whether the request takes part in the round before, whose results are not known yet. Then
            ``start``, ``depth`` and ``left`` are the largest that are possible, and the tokens are not read.
    """

    slot: int
    tokens: Sequence[int]
    start: int
    depth: int
    params: SamplingParams
    given: Sequence[int] | None = None
    uniform: Sequence[float] = ()
    left: int = 1
    continues: bool = False


@dataclass(frozen=True, slots=True)
class DeviceRoundResult:
    """The result of a round for one request.

    Attributes:
        tokens: accepted tokens, then the target's own token.
        drafted: all tokens that were verified.
        numbers_used: random numbers consumed.
        finite: whether the target's logits were finite; if not, the other fields mean nothing.
        start: position of the token before the drafts.
    """

    tokens: list[int]
    drafted: list[int] = field(default_factory=list)
    numbers_used: int = 0
    finite: bool = True
    start: int = 0


class DeviceRoundShape(NamedTuple):
    """The properties of a round that are fixed when it is recorded.

    Attributes:
        slots, length, first: see :class:`~specclient_local.model.cuda_graphs.static_runner.PassBucket`.
        depth: K, the number of drafted tokens.
        drafter: name of the draft that drafts; None if all tokens are given.
        draws: whether any request samples.
        cuts: whether any request sets top-p or top-k.
        block: whether any request's chain is verified as a block.
    """

    slots: int
    length: int
    first: bool
    depth: int
    drafter: str | None
    draws: bool
    cuts: bool
    block: bool


@dataclass(frozen=True, slots=True)
class DeviceBatch:
    """A round's inputs on the device.

    Attributes:
        slots: ``[S]`` cache slots.
        tail: ``[S, T]`` each request's last tokens.
        start: ``[S]`` position of the last token.
        drafts: the given drafts; -1 marks tokens that are drafted.
        shaping: the sampling parameters.
        uniform: ``[S, 2 K + 1]`` the next random numbers.
        block: ``[S]`` bool, whether the request's chain is verified as a block.
    """

    slots: Tensor
    tail: Tensor
    start: Tensor
    drafts: DraftTensors
    shaping: SamplingTensors
    uniform: Tensor
    block: Tensor

    @classmethod
    def read(cls, inputs: Tensor, shape: DeviceRoundShape, tail: int) -> DeviceBatch:
        """Split the copied input ``[S, N]`` into its fields. Real numbers travel as the bits of integers."""
        tokens = INTEGERS + tail
        integers, last, drafts, real = inputs.tensor_split((INTEGERS, tokens, tokens + shape.depth), dim=1)
        slots, start, depth, top_k, block, _ = integers.unbind(1)
        real = real.view(torch.double)
        shaping = SamplingTensors(real[:, 0], real[:, 1], top_k, shape.cuts)
        return cls(
            slots.contiguous(),
            last,
            start,
            DraftTensors(drafts, drafts >= 0, depth),
            shaping,
            real[:, REALS:],
            block.bool(),
        )


def input_width(depth: int, tail: int) -> int:
    """Return the number of integers in a row of the input of a round.

    Args:
        depth: K, the number of drafted tokens.
        tail: number of last tokens.
    """
    return INTEGERS + tail + depth + REALS + 2 * depth + 1


def cuts(params: SamplingParams) -> bool:
    """Return whether a request sets top-p or top-k."""
    return params.temperature > 0.0 and (params.top_p < 1.0 or params.top_k > 0)


def verifies_block(request: DeviceRoundRequest) -> bool:
    """Return whether a request's chain is verified as a block. Given tokens were picked; one is no block."""
    drawn = request.given is None and request.params.temperature > 0.0
    return drawn and request.depth > 1 and request.params.verification_rule == "block"


def input_row(request: DeviceRoundRequest, slot: int, depth: int, tail: int) -> list[int]:
    """Return a request's row of the input; -1 marks a token to draft.

    A request with fewer tokens than a draft reads repeats its first: the rows of the repetitions have
    negative positions, and are not written.

    Args:
        request: the request.
        slot: the slot of its row.
        depth: K.
        tail: number of last tokens in the row.
    """
    given = [*(request.given or ())][:depth]
    params, numbers = request.params, 2 * depth + 1
    last = [*request.tokens[-tail:]]
    reals = [params.temperature, params.top_p, *request.uniform]
    reals += [0.0] * (REALS + numbers - len(reals))
    return [
        *(slot, request.start, request.depth, min(params.top_k, _NO_TOP_K)),
        *(int(verifies_block(request)), request.left),
        *([last[0]] * (tail - len(last)) + last),
        *(*given, *[-1] * (depth - len(given))),
        *array("q", array("d", reals).tobytes()),
    ]


def result_of(output: Sequence[int], depth: int) -> DeviceRoundResult:
    """Return the result in a row of the output of a round with ``depth`` tokens."""
    guesses, (verified, accepted, token, used, finite, start) = output[:depth], output[depth:]
    return DeviceRoundResult([*guesses[:accepted], token], [*guesses[:verified]], used, bool(finite), start)
