"""The gated delta rule: prompts in chunks against the recurrence, row by row."""

from __future__ import annotations

import pytest
import torch
from specclient_local.model.delta_layer import _in_chunks
from specclient_local.model.recurrent_states import DeltaRows

ROWS, HEADS, KEY, VALUE = 150, 2, 4, 6


@pytest.mark.parametrize("forgotten", [(), (0,), (7, 8, 64, 149)])
@torch.inference_mode()
def test_chunks_have_the_states_of_the_recurrence_also_where_a_row_forgets_all(forgotten):
    """A large step of the decay makes it 0 in float32."""
    dice = torch.Generator().manual_seed(0)

    def numbers(*shape):
        return torch.randn(ROWS, HEADS, *shape, generator=dice)

    keys = torch.nn.functional.normalize(numbers(KEY), dim=-1)
    decay, beta = numbers().sigmoid(), numbers().sigmoid()
    for row in forgotten:
        decay[row, 1] = 0.0
    rows = DeltaRows(torch.empty(0), keys, numbers(VALUE), decay, beta)
    queries, state = numbers(KEY), torch.randn(HEADS, KEY, VALUE, generator=dice)
    seen, after = _in_chunks(queries, rows, state)
    for row in range(ROWS):
        state = rows.apply(state, row)
        expected = torch.einsum("hk,hkv->hv", queries[row], state)
        torch.testing.assert_close(seen[row], expected, atol=1e-4, rtol=0)
    torch.testing.assert_close(after, state, atol=1e-4, rtol=0)
