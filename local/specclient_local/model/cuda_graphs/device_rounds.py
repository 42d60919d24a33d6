"""Turn the last tokens of a batch into its next ones by one recorded run: draft, verify and draw.

All that a round needs goes to the device in one copy, all that it won comes back in another, and between them
nothing waits for the host. Its state is the caches alone: a round that runs twice writes the same keys and
values to the same places, so one can be recorded by running it.
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

_WHOLE = 6
"""Whole numbers of a request: slot, the token before the last, the last, its position, depth, top-k."""

_REAL = 2
"""Real ones: temperature, top-p."""

_GIVEN = (0, 1, 3, 7, 15)
"""Depths of rounds whose guesses are given: a row more costs little, unlike a draft's step."""

_MOST_KEPT = 1 << 62
"""A top-k that keeps every token of any vocabulary, and fits the inputs."""

_WON = 5
"""What a request gets back beside its drafts: depth, accepted, token, numbers used, whether it is sound."""


@dataclass(frozen=True, slots=True)
class DeviceRoundRequest:
    """What a request wants of a round.

    Attributes:
        slot: of its caches, which hold all its tokens but the last, or in the draft's also but the last two.
        tokens: its last two tokens, or its only one.
        start: position of the last.
        depth: how many guesses to verify.
        given: the guesses; None lets the draft model make them.
        params: temperature, top-p and top-k.
        uniform: its next ``2 K + 1`` random numbers, K being the largest depth of the round.
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
    """What a round gave a request.

    Attributes:
        tokens: accepted guesses, then the target's own token.
        guesses: all that were verified.
        used: random numbers taken.
        sound: whether the target's logits were finite; else nothing here means anything.
    """

    tokens: list[int]
    guesses: list[int] = field(default_factory=list)
    used: int = 0
    sound: bool = True


class DeviceRoundShape(NamedTuple):
    """What of a round is fixed when it is recorded.

    Attributes:
        slots, length, first: as of a pass; see
        :class:`~specclient_local.model.cuda_graphs.static_runner.PassBucket`.
        depth: K.
        model: whether the draft model guesses.
        draws: whether any request samples.
        cuts: whether any request has a top-p or top-k.
    """

    slots: int
    length: int
    first: bool
    depth: int
    model: bool
    draws: bool
    cuts: bool


class DeviceRounds:
    """Rounds of a target and, where there is one, a draft model.

    Args:
        target: the model whose distribution answers have.
        draft: a smaller one, with as many slots.
    """

    def __init__(self, target: StaticRunner, draft: StaticRunner | None = None) -> None:
        self.target = target
        self.draft = draft
        self._recorded: dict[DeviceRoundShape, tuple[Tensor, Tensor, RecordedRun]] = {}

    @torch.inference_mode()
    def run(self, asks: Sequence[DeviceRoundRequest]) -> list[DeviceRoundResult]:
        """Do one round for up to ``target.most_slots`` requests; the runners' lengths are left as they are.

        Raises:
            EngineError: a round of this shape does not fit the device's memory.
        """
        seats = self.target.seats([ask.slot for ask in asks])
        model = any(ask.depth and ask.given is None for ask in asks)
        depth = max(ask.depth for ask in asks)
        if not model:
            depth = next(most for most in _GIVEN if most >= depth)
        shape = DeviceRoundShape(
            slots=len(seats.slots),
            length=self.target.attended(max(ask.start for ask in asks) + depth + 1),
            first=seats.first,
            depth=depth,
            model=model,
            draws=any(ask.params.temperature > 0.0 for ask in asks),
            cuts=any(_cuts(ask.params) for ask in asks),
        )
        taken = {seats.rows[ask.slot]: ask for ask in asks}
        # Who pads the batch writes behind the context, and wins nothing that is asked for.
        idle = DeviceRoundRequest(0, (0,), self.target.context, 0, SamplingParams())
        rows = [_inputs(taken.get(row, idle), slot, depth) for row, slot in enumerate(seats.slots)]
        whole = torch.tensor([numbers for numbers, _ in rows])
        real = torch.tensor([numbers for _, numbers in rows], dtype=torch.double)
        won = self._replay(shape, torch.cat((whole, real.view(torch.long)), dim=1)).tolist()
        return [_gained(won[seats.rows[ask.slot]], depth) for ask in asks]

    def _replay(self, shape: DeviceRoundShape, values: Tensor) -> Tensor:
        """Run a round and wait for what it won: the one time the host waits for the device."""
        if shape not in self._recorded:
            inputs = values.to(self.target.device)
            won = torch.zeros(shape.slots, shape.depth + _WON, dtype=torch.long, device=self.target.device)
            named = f"a round of {shape.depth} guesses in {shape.slots} slots over {shape.length} positions"
            run = self.target.recorder.record(lambda: self._round(shape, inputs, won), named)
            self._recorded[shape] = inputs, won, run
        inputs, won, run = self._recorded[shape]
        inputs.copy_(values, non_blocking=True)
        run()
        return won.cpu()

    def _round(self, shape: DeviceRoundShape, inputs: Tensor, won: Tensor) -> None:
        """Turn inputs into what the round won; nothing in here waits for a value."""
        batch = _DeviceBatch.read(inputs, shape)
        drafts, q = self._guess(shape, batch) if shape.model else (batch.drafts, None)
        ids = torch.cat((batch.tail[:, 1:], drafts.tokens.clamp(min=0)), dim=1)
        drafts = DraftTensors(ids[:, 1:], drafts.picked, drafts.depth)
        block = DensePassLayout.chain(
            batch.slots, batch.start, shape.depth + 1, shape.length, first=shape.first
        )
        model = self.target.dense
        logits = model.logits(model.hidden(ids, block, self.target.cache.rows))
        steps = torch.arange(shape.depth + 1, device=inputs.device)
        sound = (logits.amax(-1).isfinite() | (steps > drafts.depth[:, None])).all(-1)
        if shape.draws:
            p = batch_probabilities(logits, batch.shaping)
            walked = accept_sampled(p, q, drafts, batch.shaping.temperature == 0.0, batch.uniform)
        else:
            walked = accept_greedy(logits.argmax(-1), drafts)
        figures = (drafts.depth, walked.accepted, walked.token, walked.used, sound.long())
        won.copy_(torch.cat((drafts.tokens, torch.stack(figures, dim=1)), dim=1))

    def _guess(self, shape: DeviceRoundShape, batch: _DeviceBatch) -> tuple[DraftTensors, Tensor | None]:
        """Let the draft model guess where nothing is given; return the drafts and its q ``[S, K, V]``.

        Its first step takes the last two tokens: of a draft that was accepted whole it has not read the last
        one yet, and to read one again changes nothing. A draft whose logits are not finite ends there.
        Who asks it for nothing has nothing read: what the draft holds in that slot may be a beginning that
        other requests share, so those rows go behind the context, as padding's do.
        """
        assert self.draft is not None
        model, cache, drafts = self.draft.dense, self.draft.cache.rows, batch.drafts
        vocab, length = self.target.config.vocab_size, min(shape.length, cache.shape[3])
        tokens: list[Tensor] = []
        laws: list[Tensor] = []
        sound: list[Tensor] = []
        asks = (drafts.depth > 0) & ~drafts.picked.any(-1)
        start = torch.where(asks, batch.start, self.target.context + 1)
        ids, begin = batch.tail, start - 1
        for step in range(shape.depth):
            block = DensePassLayout.chain(batch.slots, begin, ids.shape[1], length, first=shape.first)
            logits = model.logits(model.hidden(ids, block, cache)[:, -1:])[..., :vocab]
            if shape.draws:
                law = batch_probabilities(logits, batch.shaping)[:, 0]
                laws.append(F.pad(law, (0, vocab - law.shape[-1])))
                own = draw_tokens(law, batch.uniform[:, step])
            else:
                own = logits[:, 0].argmax(-1)
            sound.append(logits[:, 0].amax(-1).isfinite())
            tokens.append(torch.where(drafts.picked[:, step], drafts.tokens[:, step], own))
            ids, begin = tokens[-1][:, None], start + 1 + step
        whole = (torch.stack(sound, dim=1) | drafts.picked).long().cumprod(-1).sum(-1)
        found = DraftTensors(torch.stack(tokens, dim=1), drafts.picked, torch.minimum(drafts.depth, whole))
        return found, torch.stack(laws, dim=1) if laws else None


@dataclass(frozen=True, slots=True)
class _DeviceBatch:
    """A round's inputs on the device.

    Attributes:
        slots: ``[S]``.
        tail: ``[S, 2]`` each request's last two tokens.
        start: ``[S]`` position of the last.
        drafts: what is given; -1 is the draft model's to guess.
        shaping: how the requests sample.
        uniform: ``[S, 2 K + 1]`` their next random numbers.
    """

    slots: Tensor
    tail: Tensor
    start: Tensor
    drafts: DraftTensors
    shaping: SamplingTensors
    uniform: Tensor

    @classmethod
    def read(cls, inputs: Tensor, shape: DeviceRoundShape) -> _DeviceBatch:
        """Take a copy from the host apart; real numbers travel as the bits of whole ones."""
        whole, given, real = inputs.tensor_split((_WHOLE, _WHOLE + shape.depth), dim=1)
        slots, _, _, start, depth, top_k = whole.unbind(1)
        real = real.view(torch.double)
        shaping = SamplingTensors(real[:, 0], real[:, 1], top_k, shape.cuts)
        return cls(
            slots.contiguous(),
            whole[:, 1:3],
            start,
            DraftTensors(given, given >= 0, depth),
            shaping,
            real[:, _REAL:],
        )


def _cuts(params: SamplingParams) -> bool:
    return params.temperature > 0.0 and (params.top_p < 1.0 or params.top_k > 0)


def _inputs(ask: DeviceRoundRequest, slot: int, depth: int) -> tuple[list[int], list[float]]:
    """Return a request's whole and real numbers; a guess of -1 is the draft model's to make."""
    given = [*(ask.given or ())][:depth]
    params = ask.params
    uniform = [*ask.uniform, *[0.0] * (2 * depth + 1 - len(ask.uniform))]
    return (
        [
            *(slot, ask.tokens[-2:][0], ask.tokens[-1], ask.start, ask.depth, min(params.top_k, _MOST_KEPT)),
            *(*given, *[-1] * (depth - len(given))),
        ],
        [params.temperature, params.top_p, *uniform],
    )


def _gained(won: Sequence[int], depth: int) -> DeviceRoundResult:
    guesses, (verified, accepted, token, used, sound) = won[:depth], won[depth:]
    return DeviceRoundResult([*guesses[:accepted], token], [*guesses[:verified]], used, bool(sound))
