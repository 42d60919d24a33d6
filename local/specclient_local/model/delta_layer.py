"""Gated DeltaNet, the recurrent layer of Qwen 3-Next and 3.5 (Yang et al., arXiv 2412.06464).

A state maps keys to values. Each row decays it, and then replaces a share of the value that the state has for
the row's key. Few rows go through the recurrence one by one, so that a row's bits do not depend on the
others; many (a prompt) in chunks (section 3.3 there).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from specclient_local.model.architecture import DeltaConfig
from specclient_local.model.layer_weights import DeltaWeights
from specclient_local.model.linear_kernels import MAX_ROWS_PER_REQUEST, KernelChooser
from specclient_local.model.pass_spans import PassSpan
from specclient_local.model.recurrent_states import DeltaRows, LayerState
from specclient_local.model.row_functions import Project, by_row

_CHUNK = 64
"""Rows of a chunk, whose system of equations is solved at once."""

_LEAST_LOG = -104.0
"""Logarithm that stands for that of a decay of 0, as which float32 has its exponential; differences of
infinities would be NaN."""

_NORM_EPS = 1e-6
"""Epsilon of the norm of queries and keys, which no configuration states."""


class DeltaLayer:
    """A gated DeltaNet layer.

    Args:
        config: its shape.
        w: its weights.
        choose: chooses the kernels of projections.
        norm_eps: epsilon of the norm of outputs.
    """

    def __init__(self, config: DeltaConfig, w: DeltaWeights, choose: KernelChooser, norm_eps: float) -> None:
        self._config, self._eps = config, norm_eps
        self._inputs, self._out = choose(w.inputs), choose(w.out)
        self._taps = w.conv.float().t().contiguous()
        self._decay, self._bias, self._norm = w.decay.float(), w.dt_bias.float(), w.norm.float()

    def __call__(self, h: Tensor, index: int, spans: Sequence[PassSpan], project: Project) -> Tensor:
        """Return the layer's output ``[N, hidden]`` of normalised rows; move the states of their slots."""
        c = self._config
        sizes = [c.channels, c.value_heads * c.value_dim, c.value_heads, c.value_heads]
        mixed, gate, beta, step = torch.split(project(self._inputs, h).float(), sizes, 1)
        beta = by_row(torch.sigmoid, beta.contiguous())
        decay = by_row(torch.exp, -self._decay * by_row(F.softplus, (step + self._bias).contiguous()))
        seen = []
        for span in spans:
            assert span.states is not None
            own = span.rows
            seen.append(self._attend(mixed[own], beta[own], decay[own], span.states.layers[index]))
        values = seen[0] if len(seen) == 1 else torch.cat(seen)
        normed = values * torch.rsqrt(values.square().mean(-1, keepdim=True) + self._eps) * self._norm
        out = normed.flatten(1) * by_row(F.silu, gate.contiguous())
        return project(self._out, out.to(h.dtype))

    def _attend(self, mixed: Tensor, beta: Tensor, decay: Tensor, layer: LayerState) -> Tensor:
        """Return what a request's rows read from its state, ``[N, value heads, value_dim]``; record the rows.

        Args:
            mixed: ``[N, channels]`` queries, keys and values before the convolution.
            beta, decay: see :class:`DeltaRows`.
            layer: the request's state.
        """
        c, count = self._config, len(mixed)
        inputs = torch.cat((layer.inputs, mixed))
        convolved = sum(self._taps[j] * inputs[j : j + count] for j in range(c.kernel))
        assert isinstance(convolved, Tensor)
        convolved = by_row(F.silu, convolved)
        q, k, v = torch.split(convolved, [c.key_heads * c.key_dim] * 2 + [c.value_heads * c.value_dim], 1)
        shared = c.value_heads // c.key_heads
        q, k = (
            _normed(x.reshape(count, c.key_heads, c.key_dim)).repeat_interleave(shared, dim=1) for x in (q, k)
        )
        q = q * c.key_dim**-0.5
        v = v.reshape(count, c.value_heads, c.value_dim).contiguous()  # queries and keys are not kept
        rows = DeltaRows(inputs, k, v, decay, beta)
        state = layer.state
        if count > MAX_ROWS_PER_REQUEST:
            seen, state = _in_chunks(q, rows, state)
        else:
            read = []
            for row in range(count):
                state = rows.apply(state, row)
                read.append(torch.bmm(q[row].unsqueeze(1), state).squeeze(1))
            seen, layer.rows = torch.stack(read), rows
        # A copy, so that a long prompt's inputs are freed.
        layer.next_state, layer.next_inputs = state, inputs[count:].clone()
        return seen


def _normed(x: Tensor) -> Tensor:
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + _NORM_EPS)


def _in_chunks(q: Tensor, rows: DeltaRows, state: Tensor) -> tuple[Tensor, Tensor]:
    """Return what many rows read, ``[N, H, value_dim]``, and the state after them (section 3.3)."""
    logs = rows.decay.log().clamp(min=_LEAST_LOG)
    seen = []
    for begin in range(0, len(q), _CHUNK):
        own = slice(begin, begin + _CHUNK)
        queries, keys, values = (x[own].transpose(0, 1) for x in (q, rows.keys, rows.values))
        beta, total = rows.beta[own].t().unsqueeze(2), logs[own].t().cumsum(1)
        since = total.exp().unsqueeze(2)
        between = (total.unsqueeze(2) - total.unsqueeze(1)).tril().exp().tril()
        system = torch.bmm(keys * beta, keys.transpose(1, 2)) * between
        known = torch.bmm(keys * since, state)
        change = torch.linalg.solve_triangular(
            system, (values - known) * beta, upper=False, unitriangular=True
        )
        inner = torch.bmm(queries, keys.transpose(1, 2)) * between
        seen.append((torch.bmm(queries * since, state) + torch.bmm(inner, change)).transpose(0, 1))
        left = (total[:, -1:] - total).exp().unsqueeze(2)
        state = state * total[:, -1].exp()[:, None, None] + torch.bmm((keys * left).transpose(1, 2), change)
    return torch.cat(seen), state
