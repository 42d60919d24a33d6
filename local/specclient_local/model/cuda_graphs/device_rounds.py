"""Rounds that run entirely on the device: draft, score, verify and draw in one recorded CUDA graph.

One copy takes a round's inputs to the device and one copy takes its results back; nothing between them waits
for the host. The only state of a round is the KV caches. A round that runs twice writes the same keys and
values to the same positions, so it can be recorded by running it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from specclient_local.model.cuda_graphs.continued_round import HostBuffers, continue_inputs, continued_width
from specclient_local.model.cuda_graphs.device_drafts import DeviceDraft, DraftInputs
from specclient_local.model.cuda_graphs.device_verify import DraftTensors, accept_greedy, accept_sampled
from specclient_local.model.cuda_graphs.graph_recorder import RecordedRun, RecordingCache
from specclient_local.model.cuda_graphs.pass_layout import DensePassLayout
from specclient_local.model.cuda_graphs.round_layout import (
    RESULT_FIELDS,
    DeviceBatch,
    DeviceRoundRequest,
    DeviceRoundResult,
    DeviceRoundShape,
    cuts,
    input_row,
    input_width,
    result_of,
    verifies_block,
)
from specclient_local.model.cuda_graphs.static_runner import BatchSeats, StaticRunner
from specclient_local.request.params import SamplingParams

_GIVEN_DEPTHS = (0, 1, 3, 7, 15)
"""Depths of recorded rounds with given drafts. An extra row costs little, unlike a step of the draft model.
"""

_GREEDY = SamplingParams()


@dataclass(frozen=True, slots=True)
class ContinuedRound:
    """The buffers and the recorded function by which a round is continued before its results are read.

    Attributes:
        run: makes the inputs of the next round.
        sent: the host's part of them on the device.
        to_device, to_host: buffers of the host.
    """

    run: RecordedRun
    sent: Tensor
    to_device: HostBuffers
    to_host: HostBuffers


@dataclass(frozen=True, slots=True)
class RecordedRound:
    """The recording of rounds of a shape: its inputs, its output, and the function between them.

    Attributes:
        continued: None if rounds are not continued before their results are read.
    """

    inputs: Tensor
    output: Tensor
    run: RecordedRun
    continued: ContinuedRound | None = None


@dataclass(frozen=True, slots=True)
class LaunchedRound:
    """A round that was launched.

    Attributes:
        shape: its shape.
        seats: the rows of its slots.
        recorded: its recording.
        read: waits for its results, and returns them by slot.
    """

    shape: DeviceRoundShape
    seats: BatchSeats
    recorded: RecordedRound
    read: Callable[[], dict[int, DeviceRoundResult]]


class DeviceRounds:
    """Rounds of a target and its drafts.

    Args:
        target: the model whose distribution answers have.
        drafts: drafts with as many slots, by name.
        continued: whether rounds can be continued by :meth:`proceed`, for which more is recorded.

    Attributes:
        latest: the recorded function of the last round, for measurements; running it again changes nothing.
    """

    def __init__(
        self,
        target: StaticRunner,
        drafts: Mapping[str, DeviceDraft] | None = None,
        *,
        continued: bool = False,
    ) -> None:
        self.target = target
        self.drafts = dict(drafts or {})
        target.recorder.simplify += [draft.use_torch_ops for draft in self.drafts.values()]
        self.latest: RecordedRun | None = None
        self._continued = continued
        self._recorded: RecordingCache[DeviceRoundShape, RecordedRound] = RecordingCache()

    def run(
        self, requests: Sequence[DeviceRoundRequest], drafter: str | None = None
    ) -> list[DeviceRoundResult]:
        """Run one round, and wait for its results; see :meth:`launch`."""
        results = self.launch(requests, drafter).read()
        return [results[request.slot] for request in requests]

    @torch.inference_mode()
    def launch(self, requests: Sequence[DeviceRoundRequest], drafter: str | None = None) -> LaunchedRound:
        """Launch one round for up to ``target.most_slots`` requests; the runners' lengths do not change.

        Args:
            requests: the round's requests.
            drafter: the draft for requests whose tokens are not given; may be None if there are none.

        Raises:
            EngineError: a round of this shape does not fit into the device's memory.
            ValueError: a request's tokens are not given, and ``drafter`` is None.
        """
        seats = self.target.seats([request.slot for request in requests])
        shape = self._shape(requests, seats, drafter)
        self.target.cache.prepare((each.slot, each.start + each.depth + 1) for each in requests)
        rows = self._rows(requests, seats, shape)
        return self._launched(shape, seats, self._replay(shape, torch.tensor(rows)))

    @torch.inference_mode()
    def proceed(
        self, before: LaunchedRound, requests: Sequence[DeviceRoundRequest], drafter: str | None = None
    ) -> LaunchedRound | None:
        """Launch the round that continues another one, whose results the host need not have read.

        Requests of the round before that are not given stop; others may join.

        Args:
            before: the round before, the last one that was launched.
            requests: the round's requests; see :class:`DeviceRoundRequest`.
            drafter: as for :meth:`launch`.

        Returns:
            None, with nothing done, if the round has another shape than the one before.
        """
        seats = _same_rows(before.seats, self.target.seats([request.slot for request in requests]), requests)
        own = before.recorded.continued
        if own is None or seats is None or self._shape(requests, seats, drafter) != before.shape:
            return None
        own.to_device.send(self._rows(requests, seats, before.shape, continued=True), own.sent)
        own.run()
        self.latest = before.recorded.run
        self.latest()
        return self._launched(before.shape, seats, before.recorded)

    def _shape(
        self, requests: Sequence[DeviceRoundRequest], seats: BatchSeats, drafter: str | None
    ) -> DeviceRoundShape:
        """Return the shape of a round."""
        if not any(request.depth and request.given is None for request in requests):
            drafter = None
        elif drafter is None:
            raise ValueError("requests have neither given tokens nor a draft")
        depth = max(request.depth for request in requests)
        if drafter is None:
            depth = next(most for most in _GIVEN_DEPTHS if most >= depth)
        return DeviceRoundShape(
            slots=len(seats.slots),
            length=self.target.attended(max(request.start for request in requests) + depth + 1),
            first=self.target.in_order(seats),
            depth=depth,
            drafter=drafter,
            draws=any(request.params.temperature > 0.0 for request in requests),
            cuts=any(cuts(request.params) for request in requests),
            block=any(map(verifies_block, requests)),
        )

    def _rows(
        self,
        requests: Sequence[DeviceRoundRequest],
        seats: BatchSeats,
        shape: DeviceRoundShape,
        *,
        continued: bool = False,
    ) -> list[list[int]]:
        """Return the rows of the input."""
        by_row = {seats.rows[request.slot]: request for request in requests}
        # Padding rows write behind the context, and their results are not read.
        idle = DeviceRoundRequest(0, (0,), self.target.context, 0, _GREEDY)
        tail = self._tail(shape)
        taken = [by_row.get(row, idle) for row in range(len(seats.slots))]
        rows = [
            input_row(request, slot, shape.depth, tail)
            for request, slot in zip(taken, seats.slots, strict=True)
        ]
        if not continued:
            return rows
        width = continued_width(input_width(shape.depth, tail), shape.depth)
        return [
            [*row, *[0] * (width - 1 - len(row)), int(request.continues)]
            for request, row in zip(taken, rows, strict=True)
        ]

    def _tail(self, shape: DeviceRoundShape) -> int:
        """Return the number of last tokens of a request in the input."""
        return 1 if shape.drafter is None else self.drafts[shape.drafter].tail(shape.depth)

    def _launched(self, shape: DeviceRoundShape, seats: BatchSeats, recorded: RecordedRound) -> LaunchedRound:
        """Begin to copy the results of a round; copying and reading them is the only wait for the device."""
        own, output = recorded.continued, recorded.output
        received = own.to_host.receive(output) if own is not None else lambda: output.cpu().tolist()

        def read() -> dict[int, DeviceRoundResult]:
            rows = received()
            return {slot: result_of(rows[row], shape.depth) for slot, row in seats.rows.items()}

        return LaunchedRound(shape, seats, recorded, read)

    def _replay(self, shape: DeviceRoundShape, values: Tensor) -> RecordedRound:
        """Run a round; record it when it first occurs."""
        held = self._recorded.get(shape)
        if held is None:
            held = self._record(shape, values)
            self._recorded.put(shape, held)
        held.inputs.copy_(values, non_blocking=True)
        self.latest = held.run
        held.run()
        return held

    def _record(self, shape: DeviceRoundShape, values: Tensor) -> RecordedRound:
        """Record a round, and what makes the inputs of the next one from its results."""
        device, recorder = self.target.device, self.target.recorder
        inputs = values.to(device)
        output = torch.zeros(shape.slots, shape.depth + RESULT_FIELDS, dtype=torch.long, device=device)
        name = f"a round of {shape.depth} drafts in {shape.slots} slots over {shape.length} positions"
        run = recorder.record(lambda: self._round(shape, inputs, output), name)
        if not self._continued:
            return RecordedRound(inputs, output, run)
        size = shape.slots, continued_width(inputs.shape[1], shape.depth)
        sent = torch.zeros(size, dtype=torch.long, device=device)
        sizes = {"context": self.target.context, "vocab": self.target.config.vocab_size}
        proceed = recorder.record(
            lambda: continue_inputs(inputs, output, sent, shape, **sizes), f"the inputs that continue {name}"
        )
        received = HostBuffers((shape.slots, output.shape[1]), device)
        continued = ContinuedRound(proceed, sent, HostBuffers(size, device), received)
        return RecordedRound(inputs, output, run, continued)

    def _round(self, shape: DeviceRoundShape, inputs: Tensor, output: Tensor) -> None:
        """Compute the output of a round from its inputs. No operation here waits for a value."""
        batch = DeviceBatch.read(inputs, shape, self._tail(shape))
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
        figures = (drafts.depth, result.accepted, result.token, result.used, finite.long(), batch.start)
        output.copy_(torch.cat((drafts.tokens, torch.stack(figures, dim=1)), dim=1))

    def _draft(self, shape: DeviceRoundShape, batch: DeviceBatch) -> tuple[DraftTensors, Tensor | None]:
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


def _same_rows(
    before: BatchSeats, found: BatchSeats, requests: Sequence[DeviceRoundRequest]
) -> BatchSeats | None:
    """Return seats in which requests keep the rows of the round before; None if there are none.

    Args:
        before: the seats of the round before.
        found: the seats that the requests have in a round of its own.
        requests: the requests.
    """
    if len(found.slots) != len(before.slots) or found.first != before.first:
        return None
    if found.first:
        return found
    rows = {request.slot: before.rows[request.slot] for request in requests if request.continues}
    free = [row for row in range(len(before.slots)) if row not in rows.values()]
    rows.update(zip((request.slot for request in requests if not request.continues), free, strict=False))
    by_row = {row: slot for slot, row in rows.items()}
    return BatchSeats(
        [by_row.get(row, found.slots[0]) for row in range(len(before.slots))], rows, first=False
    )
