"""Rounds that run entirely on the device: draft, score, verify and draw in one recorded CUDA graph.

One copy takes a round's inputs to the device and one copy takes its results back; nothing between them waits
for the host. The only state of a round is the KV caches. A round that runs twice writes the same keys and
values to the same positions, so it can be recorded by running it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from specclient_local.model.cuda_graphs.device_drafts import DeviceDraft, DraftInputs
from specclient_local.model.cuda_graphs.device_verify import (
    DraftTensors,
    SamplingTensors,
    accept_greedy,
    accept_sampled,
)
from specclient_local.model.cuda_graphs.graph_recorder import RecordedRun, RecordingCache
from specclient_local.model.cuda_graphs.pass_layout import DensePassLayout
from specclient_local.model.cuda_graphs.static_runner import StaticRunner
from specclient_local.request.params import SamplingParams

_INTEGERS = 5
"""Integers of a request in the input, before its last tokens and its drafts: slot, position of the last
token, depth, top-k, whether its chain is verified as a block."""

_REALS = 2
"""Real numbers of a request in the input, before the random numbers: temperature, top-p."""

_GIVEN_DEPTHS = (0, 1, 3, 7, 15)
"""Depths of recorded rounds with given drafts. An extra row costs little, unlike a step of the draft model.
"""

_NO_TOP_K = 1 << 62
"""The top-k that keeps every token of any vocabulary; fits a 64-bit integer."""

_GREEDY = SamplingParams()

_RESULT_FIELDS = 5
"""Integers in the output after the drafted tokens: depth, accepted, token, random numbers used, finite."""


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


class DeviceRounds:
    """Rounds of a target and its drafts.

    Args:
        target: the model whose distribution answers have.
        drafts: drafts with as many slots, by name.

    Attributes:
        latest: the recorded function of the last round, for measurements; running it again changes nothing.
    """

    def __init__(self, target: StaticRunner, drafts: Mapping[str, DeviceDraft] | None = None) -> None:
        self.target = target
        self.drafts = dict(drafts or {})
        target.recorder.simplify += [draft.use_torch_ops for draft in self.drafts.values()]
        self.latest: RecordedRun | None = None
        self._recorded: RecordingCache[DeviceRoundShape, tuple[Tensor, Tensor, RecordedRun]] = (
            RecordingCache()
        )

    @torch.inference_mode()
    def run(
        self, requests: Sequence[DeviceRoundRequest], drafter: str | None = None
    ) -> list[DeviceRoundResult]:
        """Run one round for up to ``target.most_slots`` requests; the runners' lengths do not change.

        Args:
            requests: the round's requests.
            drafter: the draft for requests whose tokens are not given; may be None if there are none.

        Raises:
            EngineError: a round of this shape does not fit into the device's memory.
            ValueError: a request's tokens are not given, and ``drafter`` is None.
        """
        seats = self.target.seats([request.slot for request in requests])
        if not any(request.depth and request.given is None for request in requests):
            drafter = None
        elif drafter is None:
            raise ValueError("requests have neither given tokens nor a draft")
        depth = max(request.depth for request in requests)
        if drafter is None:
            depth = next(most for most in _GIVEN_DEPTHS if most >= depth)
        shape = DeviceRoundShape(
            slots=len(seats.slots),
            length=self.target.attended(max(request.start for request in requests) + depth + 1),
            first=self.target.in_order(seats),
            depth=depth,
            drafter=drafter,
            draws=any(request.params.temperature > 0.0 for request in requests),
            cuts=any(cuts(request.params) for request in requests),
            block=any(map(_verifies_block, requests)),
        )
        self.target.cache.prepare((each.slot, each.start + each.depth + 1) for each in requests)
        by_row = {seats.rows[request.slot]: request for request in requests}
        # Padding rows write behind the context, and their results are not read.
        idle = DeviceRoundRequest(0, (0,), self.target.context, 0, _GREEDY)
        tail = self._tail(shape)
        rows = [_inputs(by_row.get(row, idle), slot, depth, tail) for row, slot in enumerate(seats.slots)]
        integers = torch.tensor([numbers for numbers, _ in rows])
        real = torch.tensor([numbers for _, numbers in rows], dtype=torch.double)
        output = self._replay(shape, torch.cat((integers, real.view(torch.long)), dim=1)).tolist()
        return [_result(output[seats.rows[request.slot]], depth) for request in requests]

    def _tail(self, shape: DeviceRoundShape) -> int:
        """Return the number of last tokens of a request in the input."""
        return 1 if shape.drafter is None else self.drafts[shape.drafter].tail(shape.depth)

    def _replay(self, shape: DeviceRoundShape, values: Tensor) -> Tensor:
        """Run a round and wait for its results. This is the only wait for the device."""
        held = self._recorded.get(shape)
        if held is None:
            inputs = values.to(self.target.device)
            output = torch.zeros(
                shape.slots, shape.depth + _RESULT_FIELDS, dtype=torch.long, device=self.target.device
            )
            name = f"a round of {shape.depth} drafts in {shape.slots} slots over {shape.length} positions"
            run = self.target.recorder.record(lambda: self._round(shape, inputs, output), name)
            held = inputs, output, run
            self._recorded.put(shape, held)
        inputs, output, run = held
        inputs.copy_(values, non_blocking=True)
        self.latest = run
        run()
        return output.cpu()

    def _round(self, shape: DeviceRoundShape, inputs: Tensor, output: Tensor) -> None:
        """Compute the output of a round from its inputs. No operation here waits for a value."""
        batch = _DeviceBatch.read(inputs, shape, self._tail(shape))
        drafts, q = (batch.drafts, None) if shape.drafter is None else self._draft(shape, batch)
        ids = torch.cat((batch.tail[:, -1:], drafts.tokens.clamp(min=0)), dim=1)
        drafts = DraftTensors(ids[:, 1:], drafts.picked, drafts.depth)
        layout = DensePassLayout.chain(
            batch.slots,
            batch.start,
            shape.depth + 1,
            shape.length,
            context=self.target.context,
            first=shape.first,
        )
        model, cache = self.target.dense, self.target.cache
        logits = model.logits(model.hidden(ids, model.tables(layout, cache), cache, self.target.states))
        if shape.draws:
            p, largest = model.ops.probabilities(logits, batch.shaping)
            block = batch.block if shape.block else None
            certain = batch.shaping.temperature == 0.0
            result = accept_sampled(p, q, drafts, certain, batch.uniform, block=block)
        else:
            best, largest = model.ops.largest(logits)
            result = accept_greedy(best, drafts)
        steps = torch.arange(shape.depth + 1, device=inputs.device)
        finite = (largest.isfinite() | (steps > drafts.depth[:, None])).all(-1)
        figures = (drafts.depth, result.accepted, result.token, result.used, finite.long())
        output.copy_(torch.cat((drafts.tokens, torch.stack(figures, dim=1)), dim=1))

    def _draft(self, shape: DeviceRoundShape, batch: _DeviceBatch) -> tuple[DraftTensors, Tensor | None]:
        """Draft; return the drafts and q ``[S, K, V]`` (None if no request samples, or all are picked)."""
        assert shape.drafter is not None
        drafts, context = batch.drafts, self.target.context
        requests = (drafts.depth > 0) & ~drafts.picked.any(-1)
        inputs = DraftInputs(
            slots=batch.slots,
            tail=batch.tail,
            start=torch.where(requests, batch.start, context + batch.tail.shape[1] + 1),
            drafts=drafts,
            shaping=batch.shaping,
            uniform=batch.uniform,
            draws=shape.draws,
            vocab=self.target.config.vocab_size,
            length=shape.length,
            first=shape.first,
        )
        return self.drafts[shape.drafter].draft(inputs)


@dataclass(frozen=True, slots=True)
class _DeviceBatch:
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
    def read(cls, inputs: Tensor, shape: DeviceRoundShape, tail: int) -> _DeviceBatch:
        """Split the copied input ``[S, N]`` into its fields. Real numbers travel as the bits of integers."""
        tokens = _INTEGERS + tail
        integers, last, drafts, real = inputs.tensor_split((_INTEGERS, tokens, tokens + shape.depth), dim=1)
        slots, start, depth, top_k, block = integers.unbind(1)
        real = real.view(torch.double)
        shaping = SamplingTensors(real[:, 0], real[:, 1], top_k, shape.cuts)
        return cls(
            slots.contiguous(),
            last,
            start,
            DraftTensors(drafts, drafts >= 0, depth),
            shaping,
            real[:, _REALS:],
            block.bool(),
        )


def cuts(params: SamplingParams) -> bool:
    """Return whether a request sets top-p or top-k."""
    return params.temperature > 0.0 and (params.top_p < 1.0 or params.top_k > 0)


def _verifies_block(request: DeviceRoundRequest) -> bool:
    """Return whether a request's chain is verified as a block. Given tokens were picked; one is no block."""
    drawn = request.given is None and request.params.temperature > 0.0
    return drawn and request.depth > 1 and request.params.verification_rule == "block"


def _inputs(request: DeviceRoundRequest, slot: int, depth: int, tail: int) -> tuple[list[int], list[float]]:
    """Return a request's integers and real numbers for the input; -1 marks a token to draft.

    A request with fewer tokens than a draft reads repeats its first: the rows of the repetitions have
    negative positions, and are not written.
    """
    given = [*(request.given or ())][:depth]
    params = request.params
    uniform = [*request.uniform, *[0.0] * (2 * depth + 1 - len(request.uniform))]
    last = [*request.tokens[-tail:]]
    return (
        [
            *(slot, request.start, request.depth, min(params.top_k, _NO_TOP_K)),
            int(_verifies_block(request)),
            *([last[0]] * (tail - len(last)) + last),
            *(*given, *[-1] * (depth - len(given))),
        ],
        [params.temperature, params.top_p, *uniform],
    )


def _result(output: Sequence[int], depth: int) -> DeviceRoundResult:
    guesses, (verified, accepted, token, used, finite) = output[:depth], output[depth:]
    return DeviceRoundResult([*guesses[:accepted], token], [*guesses[:verified]], used, bool(finite))
