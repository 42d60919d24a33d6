"""States of recurrent layers by slot, which can go back to any row of the last pass.

A recurrent layer has a state instead of keys and values: it cannot drop the last positions by a smaller
length. So the state before a pass stays, and the rows of the pass are recorded, until the next pass begins:
the accepted ones are then applied again, by the operations of the pass, so that the state has the same bits.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from specclient_local.model.architecture import DecoderConfig, DeltaConfig
from specclient_local.model.linear_kernels import MAX_ROWS_PER_REQUEST


@dataclass(frozen=True, slots=True)
class DeltaRows:
    """The changes that the rows of a pass make to a layer's state.

    Attributes:
        inputs: ``[kernel - 1 + N, channels]`` inputs of the convolution, those before the pass included.
        keys: ``[N, value heads, key_dim]`` normalised keys.
        values: ``[N, value heads, value_dim]``.
        decay: ``[N, value heads]`` factors of the state.
        beta: ``[N, value heads]`` shares of a value that are written.
    """

    inputs: Tensor
    keys: Tensor
    values: Tensor
    decay: Tensor
    beta: Tensor

    def apply(self, state: Tensor, row: int) -> Tensor:
        """Return a state ``[value heads, key_dim, value_dim]`` after a row (arXiv 2412.06464, eq. 10)."""
        state = state * self.decay[row, :, None, None]
        key = self.keys[row]
        known = torch.bmm(key.unsqueeze(1), state).squeeze(1)
        change = (self.values[row] - known) * self.beta[row, :, None]
        return state + key.unsqueeze(2) * change.unsqueeze(1)


@dataclass(slots=True)
class LayerState:
    """A layer's states in a slot.

    Attributes:
        state: ``[value heads, key_dim, value_dim]`` before the last pass.
        inputs: ``[kernel - 1, channels]`` last inputs of the convolution before it.
        next_state, next_inputs: the same after it.
        rows: the rows of the last pass; None if it was too long for its rows to be recorded.
    """

    state: Tensor
    inputs: Tensor
    next_state: Tensor
    next_inputs: Tensor
    rows: DeltaRows | None = None

    @classmethod
    def empty(cls, config: DeltaConfig, device: torch.device) -> LayerState:
        """Return the state before the first position."""
        shape = (config.value_heads, config.key_dim, config.value_dim)
        state = torch.zeros(shape, device=device)
        inputs = torch.zeros(config.kernel - 1, config.channels, device=device)
        return cls(state, inputs, state, inputs)

    def advance(self, count: int | None) -> None:
        """Go to the state after the first ``count`` rows of the last pass; None for all."""
        if count is None:
            self.state, self.inputs = self.next_state, self.next_inputs
        elif self.rows is not None:
            for row in range(count):
                self.state = self.rows.apply(self.state, row)
            self.inputs = self.rows.inputs[count : count + len(self.inputs)]
        self.rows = None


@dataclass(slots=True)
class SlotStates:
    """The states of a slot's recurrent layers.

    Attributes:
        config: the layers' shape.
        device: where they are.
        layers: the states by the layer's number.
        start: position before which ``LayerState.state`` is.
        count: rows of the last pass.
        assumed: whether only times matter, and the states need not belong to the position.
    """

    config: DeltaConfig
    device: torch.device
    layers: dict[int, LayerState] = field(default_factory=dict)
    start: int = 0
    count: int = 0
    assumed: bool = False

    def begin(self, start: int, count: int) -> None:
        """Go to the state at a position, before a pass over ``count`` rows.

        Raises:
            ValueError: the position is neither 0 nor in the last pass.
        """
        accepted = start - self.start
        if start == 0 or self.assumed:
            self.layers = {
                i: LayerState.empty(self.config, self.device)
                for i, recurrent in enumerate(self.config.recurrent)
                if recurrent
            }
        elif accepted == self.count:
            self._advance(None)
        elif 0 <= accepted < self.count <= MAX_ROWS_PER_REQUEST:
            self._advance(accepted)
        else:
            raise ValueError(
                f"position {start} is out of reach of states at {self.start} to {self.start + self.count}"
            )
        self.start, self.count = start, count

    def _advance(self, count: int | None) -> None:
        for layer in self.layers.values():
            layer.advance(count)


def slot_states(config: DecoderConfig, slots: int, device: torch.device) -> list[SlotStates] | None:
    """Return the states of each slot; None for a model without recurrent layers."""
    return None if config.delta is None else [SlotStates(config.delta, device) for _ in range(slots)]
