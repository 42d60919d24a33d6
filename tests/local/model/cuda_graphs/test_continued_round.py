"""Inputs that the device makes of a round's results, against those that the host would send after it."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
import torch
from specclient_local.model.cuda_graphs.continued_round import HostBuffers, continue_inputs, continued_width
from specclient_local.model.cuda_graphs.round_layout import (
    INTEGERS,
    DeviceRoundRequest,
    DeviceRoundShape,
    input_row,
    input_width,
)
from specclient_local.request.params import SamplingParams

CONTEXT, VOCAB, ROWS = 64, 300, 12
PARAMS = SamplingParams(temperature=0.7, top_p=0.9, top_k=5)


def continued(requests, results, later, depth, tail):
    """Return the inputs ``[S, W]`` that follow on requests with these results.

    Args:
        requests: of the round before.
        results: of it: drafted tokens, accepted, own token, numbers used, whether finite.
        later: requests that the host sends.
        depth: K.
        tail: last tokens of a row.
    """
    shape = DeviceRoundShape(len(requests), 64, True, depth, "draft", True, True, True)
    inputs = torch.tensor([input_row(each, each.slot, depth, tail) for each in requests])
    rows = [
        [*drafted, each.depth, accepted, token, used, finite, each.start]
        for each, (drafted, accepted, token, used, finite) in zip(requests, results, strict=True)
    ]
    width = continued_width(input_width(depth, tail), depth)
    sent = [input_row(each, each.slot, depth, tail) for each in later]
    sent = [
        [*row, *[0] * (width - 1 - len(row)), each.continues] for each, row in zip(later, sent, strict=True)
    ]
    continue_inputs(inputs, torch.tensor(rows), torch.tensor(sent), shape, context=CONTEXT, vocab=VOCAB)
    return inputs.tolist()


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(("depth", "tail"), [(0, 1), (3, 2), (4, 5)])
def test_rows_are_those_of_the_host(depth, tail, seed):
    rng, numbers = random.Random(seed), 2 * depth + 1
    requests, results, later, expected = [], [], [], []
    for slot in range(ROWS):
        tokens = [rng.randrange(VOCAB) for _ in range(rng.randint(1, 9))]
        left = rng.randint(1, 2 * depth + 3)
        own = min(rng.randint(0, depth), left - 1)
        stream = [rng.random() for _ in range(2 * numbers)]
        request = DeviceRoundRequest(
            slot, tokens, len(tokens) - 1, own, PARAMS, uniform=stream[:numbers], left=left
        )
        accepted, used = rng.randint(0, own), rng.randint(0, numbers)
        drafted, token = [rng.randrange(VOCAB) for _ in range(depth)], rng.randrange(VOCAB)
        finite = rng.random() > 0.2
        requests.append(request)
        results.append((drafted, accepted, token, used, finite))
        joins = rng.random() < 0.2
        if joins:
            later.append(replace(request, tokens=[7, 8], start=1, depth=min(1, depth), left=9))
            expected.append(input_row(later[-1], slot, depth, tail))
            continue
        later.append(replace(request, uniform=stream, continues=True))
        left -= accepted + 1
        if not finite or left <= 0:
            expected.append(None)
            continue
        tokens = [*tokens, *drafted[:accepted], token]
        after = replace(
            request,
            tokens=tokens,
            start=len(tokens) - 1,
            depth=min(own, left - 1),
            uniform=stream[used : used + numbers],
            left=left,
        )
        expected.append(input_row(after, slot, depth, tail))
    assert None in expected, "some requests end"
    for found, wanted in zip(continued(requests, results, later, depth, tail), expected, strict=True):
        if wanted is None:
            assert found[1:3] == [CONTEXT, 0], "a row of padding, without drafts"
        else:
            assert found == wanted


def test_a_row_of_padding_stays_one_and_tokens_stay_in_the_vocabulary():
    idle = DeviceRoundRequest(0, (0,), CONTEXT, 0, SamplingParams())
    going = DeviceRoundRequest(1, (5,), 3, 1, PARAMS, left=9)
    later = [replace(each, uniform=[0.5] * 6, continues=True) for each in (idle, going)]
    results = [([0], 0, 1, 0, True), ([VOCAB + 5], 1, -3, 0, True)]
    found = continued([idle, going], results, later, 1, 2)
    assert found[0][1:3] == [CONTEXT, 0]
    assert found[1][INTEGERS : INTEGERS + 2] == [VOCAB - 1, 0]


def test_a_buffer_is_kept_until_the_second_next_copy():
    buffers, read = HostBuffers((1, 2), torch.device("cpu")), []
    for i in range(4):
        read.append(buffers.receive(torch.tensor([[i, i]])))
        if i:
            assert (read[i - 1](), read[i]()) == ([[i - 1, i - 1]], [[i, i]])
    target = torch.zeros(1, 2, dtype=torch.long)
    buffers.send([[8, 9]], target)
    assert target.tolist() == [[8, 9]]
