"""Rounds that run entirely on the device: draft, score, verify and draw in one recorded CUDA graph.

One copy takes a round's inputs to the device and one copy takes its results back; nothing between them waits
for the host. The only state of a round is the KV caches. A round that runs twice writes the same keys and
values to the same positions, so it can be recorded by running it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from specclient_local.model.cuda_graphs.dense_decoder import DensePassLayout
from specclient_local.model.cuda_graphs.device_verify import (
    DraftTensors,
    SamplingTensors,
    accept_greedy,
    accept_sampled,
    batch_probabilities,
    draw_tokens,
)
from specclient_local.model.cuda_graphs.graph_recorder import RecordedRun
from specclient_local.model.cuda_graphs.static_runner import StaticRunner
from specclient_local.request.params import SamplingParams

_INTEGERS = 6
"""Integers of a request in the input: slot, last token but one, last token, its position, depth, top-k."""

_REALS = 2
"""Real numbers of a request in the input, before the random numbers: temperature, top-p."""

_GIVEN_DEPTHS = (0, 1, 3, 7, 15)
"""Depths of recorded rounds with given drafts. An extra row costs little, unlike a step of the draft model.
"""

_NO_TOP_K = 1 << 62
"""The top-k that keeps every token of any vocabulary; fits a 64-bit integer."""

_RESULT_FIELDS = 5
"""Integers in the output after the drafted tokens: depth, accepted, token, random numbers used, finite."""


@dataclass(frozen=True, slots=True)
class DeviceRoundRequest:
    """The input of a round for one request.

    Attributes:
        slot: cache slot. The target's cache holds all tokens but the last; the draft's may lack the last two.
        tokens: the last two tokens, or the only one.
        start: position of the last token.
        depth: number of drafted tokens to verify.
        params: temperature, top-p and top-k are used.
        given: the drafted tokens, or None if the draft model drafts.
        uniform: the request's next ``2 K + 1`` random numbers; K is the largest depth in the round.
    """

    slot: int
    tokens: Sequence[int]
    start: int
    depth: int
    params: SamplingParams
    given: Sequence[int] | None = None
    uniform: Sequence[float] = ()


@dataclass(frozen=True, slots=True)
class DeviceRoundResult:
    """The result of a round for one request.

    Attributes:
        tokens: accepted tokens, then the target's own token.
        drafted: all tokens that were verified.
        numbers_used: random numbers consumed.
        finite: whether the target's logits were finite; if not, the other fields mean nothing.
    """

    tokens: list[int]
    drafted: list[int] = field(default_factory=list)
    numbers_used: int = 0
    finite: bool = True


class DeviceRoundShape(NamedTuple):
    """The properties of a round that are fixed when it is recorded.

    Attributes:
        slots, length, first: see :class:`~specclient_local.model.cuda_graphs.static_runner.PassBucket`.
        depth: K, the number of drafted tokens.
        model: whether the draft model drafts.
        draws: whether any request samples.
        cuts: whether any request sets top-p or top-k.
    """

    slots: int
    length: int
    first: bool
    depth: int
    model: bool
    draws: bool
    cuts: bool


class DeviceRounds:
    """Rounds of a target and an optional draft model.

    Args:
        target: the model whose distribution answers have.
        draft: a smaller model with as many slots.
    """

    def __init__(self, target: StaticRunner, draft: StaticRunner | None = None) -> None:
        self.target = target
        self.draft = draft
        self._recorded: dict[DeviceRoundShape, tuple[Tensor, Tensor, RecordedRun]] = {}

    @torch.inference_mode()
    def run(self, requests: Sequence[DeviceRoundRequest]) -> list[DeviceRoundResult]:
        """Run one round for up to ``target.most_slots`` requests; the runners' lengths do not change.

        Raises:
            EngineError: a round of this shape does not fit into the device's memory.
        """
        seats = self.target.seats([request.slot for request in requests])
        model = any(request.depth and request.given is None for request in requests)
        depth = max(request.depth for request in requests)
        if not model:
            depth = next(most for most in _GIVEN_DEPTHS if most >= depth)
        shape = DeviceRoundShape(
            slots=len(seats.slots),
            length=self.target.attended(max(request.start for request in requests) + depth + 1),
            first=seats.first,
            depth=depth,
            model=model,
            draws=any(request.params.temperature > 0.0 for request in requests),
            cuts=any(_cuts(request.params) for request in requests),
        )
        by_row = {seats.rows[request.slot]: request for request in requests}
        # Padding rows write behind the context, and their results are not read.
        idle = DeviceRoundRequest(0, (0,), self.target.context, 0, SamplingParams())
        rows = [_inputs(by_row.get(row, idle), slot, depth) for row, slot in enumerate(seats.slots)]
        integers = torch.tensor([numbers for numbers, _ in rows])
        real = torch.tensor([numbers for _, numbers in rows], dtype=torch.double)
        output = self._replay(shape, torch.cat((integers, real.view(torch.long)), dim=1)).tolist()
        return [_result(output[seats.rows[request.slot]], depth) for request in requests]

    def _replay(self, shape: DeviceRoundShape, values: Tensor) -> Tensor:
        """Run a round and wait for its results. This is the only wait for the device."""
        if shape not in self._recorded:
            inputs = values.to(self.target.device)
            output = torch.zeros(
                shape.slots, shape.depth + _RESULT_FIELDS, dtype=torch.long, device=self.target.device
            )
            name = f"a round of {shape.depth} drafts in {shape.slots} slots over {shape.length} positions"
            run = self.target.recorder.record(lambda: self._round(shape, inputs, output), name)
            self._recorded[shape] = inputs, output, run
        inputs, output, run = self._recorded[shape]
        inputs.copy_(values, non_blocking=True)
        run()
        return output.cpu()

    def _round(self, shape: DeviceRoundShape, inputs: Tensor, output: Tensor) -> None:
        """Compute the output of a round from its inputs. No operation here waits for a value."""
        batch = _DeviceBatch.read(inputs, shape)
        drafts, q = self._draft(shape, batch) if shape.model else (batch.drafts, None)
        ids = torch.cat((batch.tail[:, 1:], drafts.tokens.clamp(min=0)), dim=1)
        drafts = DraftTensors(ids[:, 1:], drafts.picked, drafts.depth)
        block = DensePassLayout.chain(
            batch.slots, batch.start, shape.depth + 1, shape.length, first=shape.first
        )
        model = self.target.dense
        logits = model.logits(model.hidden(ids, block, self.target.cache.rows))
        steps = torch.arange(shape.depth + 1, device=inputs.device)
        finite = (logits.amax(-1).isfinite() | (steps > drafts.depth[:, None])).all(-1)
        if shape.draws:
            p = batch_probabilities(logits, batch.shaping)
            result = accept_sampled(p, q, drafts, batch.shaping.temperature == 0.0, batch.uniform)
        else:
            result = accept_greedy(logits.argmax(-1), drafts)
        figures = (drafts.depth, result.accepted, result.token, result.used, finite.long())
        output.copy_(torch.cat((drafts.tokens, torch.stack(figures, dim=1)), dim=1))

    def _draft(self, shape: DeviceRoundShape, batch: _DeviceBatch) -> tuple[DraftTensors, Tensor | None]:
        """Draft with the draft model; return the drafts and q ``[S, K, V]`` (None if no request samples).

        The first step reads the last two tokens: after a fully accepted draft, the draft model has not read
        the last but one yet, and reading a token again changes nothing. A draft ends where its logits are not
        finite. Requests that want no draft write behind the context, as padding does: the draft's cache in
        their slot may hold a prefix that other requests share.
        """
        assert self.draft is not None
        model, cache, drafts = self.draft.dense, self.draft.cache.rows, batch.drafts
        vocab, length = self.target.config.vocab_size, min(shape.length, cache.shape[3])
        tokens: list[Tensor] = []
        distributions: list[Tensor] = []
        finite: list[Tensor] = []
        requests = (drafts.depth > 0) & ~drafts.picked.any(-1)
        start = torch.where(requests, batch.start, self.target.context + 1)
        ids, begin = batch.tail, start - 1
        for step in range(shape.depth):
            block = DensePassLayout.chain(batch.slots, begin, ids.shape[1], length, first=shape.first)
            logits = model.logits(model.hidden(ids, block, cache)[:, -1:])[..., :vocab]
            if shape.draws:
                distribution = batch_probabilities(logits, batch.shaping)[:, 0]
                distributions.append(F.pad(distribution, (0, vocab - distribution.shape[-1])))
                own = draw_tokens(distribution, batch.uniform[:, step])
            else:
                own = logits[:, 0].argmax(-1)
            finite.append(logits[:, 0].amax(-1).isfinite())
            tokens.append(torch.where(drafts.picked[:, step], drafts.tokens[:, step], own))
            ids, begin = tokens[-1][:, None], start + 1 + step
        whole = (torch.stack(finite, dim=1) | drafts.picked).long().cumprod(-1).sum(-1)
        found = DraftTensors(torch.stack(tokens, dim=1), drafts.picked, torch.minimum(drafts.depth, whole))
        return found, torch.stack(distributions, dim=1) if distributions else None


@dataclass(frozen=True, slots=True)
class _DeviceBatch:
    """A round's inputs on the device.

    Attributes:
        slots: ``[S]`` cache slots.
        tail: ``[S, 2]`` each request's last two tokens.
        start: ``[S]`` position of the last token.
        drafts: the given drafts; -1 marks tokens that the draft model drafts.
        shaping: the sampling parameters.
        uniform: ``[S, 2 K + 1]`` the next random numbers.
    """

    slots: Tensor
    tail: Tensor
    start: Tensor
    drafts: DraftTensors
    shaping: SamplingTensors
    uniform: Tensor

    @classmethod
    def read(cls, inputs: Tensor, shape: DeviceRoundShape) -> _DeviceBatch:
        """Split the copied input ``[S, N]`` into its fields. Real numbers travel as the bits of integers."""
        integers, drafts, real = inputs.tensor_split((_INTEGERS, _INTEGERS + shape.depth), dim=1)
        slots, _, _, start, depth, top_k = integers.unbind(1)
        real = real.view(torch.double)
        shaping = SamplingTensors(real[:, 0], real[:, 1], top_k, shape.cuts)
        return cls(
            slots.contiguous(),
            integers[:, 1:3],
            start,
            DraftTensors(drafts, drafts >= 0, depth),
            shaping,
            real[:, _REALS:],
        )


def _cuts(params: SamplingParams) -> bool:
    return params.temperature > 0.0 and (params.top_p < 1.0 or params.top_k > 0)


def _inputs(request: DeviceRoundRequest, slot: int, depth: int) -> tuple[list[int], list[float]]:
    """Return a request's integers and real numbers for the input; -1 marks a token for the draft model."""
    given = [*(request.given or ())][:depth]
    params = request.params
    uniform = [*request.uniform, *[0.0] * (2 * depth + 1 - len(request.uniform))]
    return (
        [
            *(
                slot,
                request.tokens[-2:][0],
                request.tokens[-1],
                request.start,
                request.depth,
                min(params.top_k, _NO_TOP_K),
            ),
            *(*given, *[-1] * (depth - len(given))),
        ],
        [params.temperature, params.top_p, *uniform],
    )


def _result(output: Sequence[int], depth: int) -> DeviceRoundResult:
    guesses, (verified, accepted, token, used, finite) = output[:depth], output[depth:]
    return DeviceRoundResult([*guesses[:accepted], token], [*guesses[:verified]], used, bool(finite))
