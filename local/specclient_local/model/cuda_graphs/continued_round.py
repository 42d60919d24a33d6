"""Rounds that continue a round whose results the host has not read yet.

The inputs of such a round are made on the device of the inputs and the output of the round before. The host
sends what it knows itself: which requests go on, which begin, and further random numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from specclient_local.model.cuda_graphs.round_layout import INTEGERS, REALS, RESULT_FIELDS, DeviceRoundShape


def continued_width(width: int, depth: int) -> int:
    """Return the number of integers that the host sends for each slot of a round that continues another.

    Args:
        width: integers in a row of the round's inputs.
        depth: K, the number of drafted tokens.
    """
    return width + 2 * depth + 1 + 1


def continue_inputs(
    inputs: Tensor, output: Tensor, sent: Tensor, shape: DeviceRoundShape, *, context: int, vocab: int
) -> None:
    """Replace a round's inputs by those of the round that continues it. No operation waits for a value.

    A request stops, and its row becomes one of padding, if it reached its limit or its logits were not
    finite. Drafts end at the limit, as those that the host plans do.

    Args:
        inputs: ``[S, W]`` the inputs of the round before; overwritten.
        output: ``[S, K + RESULT_FIELDS]`` its output.
        sent: ``[S, W + 2 K + 2]`` by the host: rows of inputs with twice as many random numbers, counted from
            the first one that the round before could use; then whether the slot's request continues. If not,
            the row is taken as it is.
        shape: of both rounds.
        context: positions per slot. Rows of padding have this one.
        vocab: V; tokens of logits that are not finite may have any number.
    """
    depth, width = shape.depth, inputs.shape[1]
    numbers = 2 * depth + 1
    tail = width - INTEGERS - depth - REALS - numbers
    _, start, drafts, _, block, left = inputs[:, :INTEGERS].unbind(1)
    _, accepted, token, used, finite, _ = output[:, depth : depth + RESULT_FIELDS].unbind(1)
    left = left - accepted - 1
    goes_on = (finite > 0) & (left > 0) & (start < context)
    drafts = torch.where(goes_on, torch.minimum(drafts, left - 1), 0)
    start = torch.where(goes_on, start + accepted + 1, context)
    # The new tokens follow the old ones; the last of them are the next round's.
    old = inputs[:, INTEGERS : INTEGERS + tail]
    tokens = torch.cat((old, output[:, :depth], token[:, None]), dim=1)
    tokens = tokens.scatter(1, (accepted + tail)[:, None], token[:, None]).clamp(0, vocab - 1)
    steps = torch.arange(max(tail, numbers), device=inputs.device)
    tokens = tokens.gather(1, (accepted + 1)[:, None] + steps[:tail])
    random = sent[:, width - numbers : width + numbers].gather(1, used[:, None] + steps[:numbers])
    own = torch.cat(
        (
            inputs[:, :1],
            torch.stack((start, drafts, inputs[:, 3], block * (drafts > 1), left), dim=1),
            tokens,
            inputs[:, INTEGERS + tail : width - numbers],
            random,
        ),
        dim=1,
    )
    inputs.copy_(torch.where(sent[:, -1:] > 0, own, sent[:, :width]))


@dataclass(slots=True)
class _HostBuffer:
    values: Tensor
    copied: torch.cuda.Event | None


class HostBuffers:
    """Two buffers on the host that take turns, so that one can be read while the device fills the other.

    Args:
        shape: of each buffer; integers.
        device: the device that reads or fills them.
    """

    def __init__(self, shape: tuple[int, int], device: torch.device) -> None:
        on_gpu = device.type == "cuda"
        self._device = device
        self._buffers = [
            _HostBuffer(
                torch.zeros(shape, dtype=torch.long, pin_memory=on_gpu),
                torch.cuda.Event() if on_gpu else None,  # type: ignore[no-untyped-call]
            )
            for _ in range(2)
        ]

    def send(self, rows: list[list[int]], target: Tensor) -> None:
        """Copy rows to the device, without waiting for it.

        The buffer was used two rounds ago. The caller has read the results of that round since.
        """
        buffer = self._next()
        buffer.values.numpy()[:] = rows
        target.copy_(buffer.values, non_blocking=True)

    def receive(self, source: Tensor) -> Callable[[], list[list[int]]]:
        """Begin to copy a tensor from the device; return a function that waits for it and returns the rows.

        The rows must be read before the second next call.
        """
        buffer = self._next()
        buffer.values.copy_(source, non_blocking=True)
        if buffer.copied is not None:
            buffer.copied.record(torch.cuda.current_stream(self._device))

        def read() -> list[list[int]]:
            if buffer.copied is not None:
                buffer.copied.synchronize()
            rows: list[list[int]] = buffer.values.numpy().tolist()
            return rows

        return read

    def _next(self) -> _HostBuffer:
        self._buffers.reverse()
        return self._buffers[0]
