"""Verification with tensors against the host's: sampling transform, draws, acceptance and residual."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from p_values import chi_square_p
from specclient_local.decoding.verify import verify
from specclient_local.model import sampling as sampling
from specclient_local.model.cuda_graphs import device_verify as walk
from specclient_local.request.params import VERIFICATIONS, SamplingParams
from specclient_local.request.sequence import RandomStream
from specclient_local.request.token_tree import TokenTree

VOCAB, DEPTH, BATCH = 7, 3, 64
SETTINGS = [
    {"temperature": 0.0},
    {"temperature": 0.7},
    {"temperature": 1.0, "top_p": 0.8},
    {"temperature": 1.3, "top_k": 3},
    {"temperature": 0.9, "top_p": 0.9, "top_k": 5},
    {"temperature": 1e-3},
    {"temperature": 1.0, "top_k": 1},
    {"temperature": 2.0, "top_p": 0.01},
    {"temperature": 1.0, "top_k": 100},
]


def shaping(params):
    return walk.SamplingTensors(
        torch.tensor([p.temperature for p in params], dtype=torch.double),
        torch.tensor([p.top_p for p in params], dtype=torch.double),
        torch.tensor([p.top_k for p in params]),
        cuts=any(p.temperature and (p.top_p < 1 or p.top_k) for p in params),
    )


def host_probabilities(logits, params):
    """Return the host's probabilities [N, V]."""
    all_p = sampling.distributions(logits, params)
    return np.stack(
        [
            np.eye(logits.shape[-1])[distribution] if isinstance(distribution, int) else distribution
            for distribution in all_p
        ]
    )


@pytest.mark.parametrize("vocab", [7, 300])
def test_batch_probabilities_equal_the_hosts_for_every_request(vocab):
    params = [SamplingParams(**settings) for settings in SETTINGS]
    logits = torch.randn(len(params), 5, vocab, generator=torch.manual_seed(0)) * 3
    logits[:, 0, 2] = logits[:, 0, 4]  # a tie
    logits[:, 1] = 0.0
    found = walk.batch_probabilities(logits, shaping(params))
    for own, rows, settings in zip(found, logits, params, strict=True):
        np.testing.assert_allclose(own.numpy(), host_probabilities(rows, settings), atol=1e-14)


def test_nothing_is_sorted_without_top_p_or_top_k(monkeypatch):
    monkeypatch.setattr(walk, "_cut", None)
    params = [SamplingParams(temperature=0.5), SamplingParams(temperature=0.0, top_p=0.5, top_k=3)]
    logits = torch.randn(2, 1, 9, generator=torch.manual_seed(0))
    found = walk.batch_probabilities(logits, shaping(params))
    np.testing.assert_allclose(found[0].numpy(), host_probabilities(logits[0], params[0]), atol=1e-15)
    assert found[1].tolist() == np.eye(9)[[int(logits[1, 0].argmax())]].tolist()


class CountingStream(RandomStream):
    """A random stream that counts the numbers used."""

    taken = 0

    def uniform(self):
        self.taken += 1
        return super().uniform()


def case(seed, rule="token"):
    """Return a batch with drawn and picked drafts, and the host's result for each request."""
    rng = np.random.default_rng(seed)
    cold = rng.random(BATCH) < 0.2
    p, q = rng.dirichlet(np.full(VOCAB, 0.5), (2, BATCH, DEPTH + 1))
    p[rng.random(p.shape) < 0.3] = 0.0
    p[..., 0] += 1e-3
    close = rng.random(BATCH) < 0.2
    p[close] = q[close]  # acceptance is certain
    p /= p.sum(-1, keepdims=True)
    for distribution in (p, q):
        distribution[cold] = np.eye(VOCAB)[distribution[cold].argmax(-1)]
    picked = rng.random(BATCH) < 0.3
    depth = rng.integers(0, DEPTH + 1, BATCH)
    tokens = np.zeros((BATCH, DEPTH), dtype=int)
    expected, uniform = [], []
    for i in range(BATCH):
        ahead = RandomStream(seed * BATCH + i)
        uniform.append([ahead.uniform() for _ in range(2 * DEPTH + 1)])
        random_stream = CountingStream(seed * BATCH + i)
        tree = TokenTree()
        for step in range(depth[i]):
            distribution = int(q[i, step].argmax()) if cold[i] else q[i, step]
            token = int(rng.integers(VOCAB)) if picked[i] else random_stream.draw(distribution)
            tree.add(step - 1, token, None if picked[i] else distribution)
            tokens[i, step] = token
        target = [
            int(distribution.argmax()) if cold[i] else distribution for distribution in p[i, : depth[i] + 1]
        ]
        verdict = verify(tree, target, random_stream, rule)
        expected.append((len(verdict.path), verdict.token, random_stream.taken))
    drafts = walk.DraftTensors(
        torch.from_numpy(tokens),
        torch.from_numpy(np.repeat(picked[:, None], DEPTH, 1)),
        torch.from_numpy(depth),
    )
    numbers = torch.tensor(uniform, dtype=torch.double)
    all_p = torch.from_numpy(p), torch.from_numpy(q[:, :DEPTH].copy())
    return *all_p, drafts, torch.from_numpy(cold), numbers, expected


def by(rule, drafts):
    """Return which requests of a batch are verified as a block: those with drawn tokens, or none."""
    return ~drafts.picked.any(-1) & torch.full((BATCH,), rule == "block")


def outcomes(walked):
    return list(zip(walked.accepted.tolist(), walked.token.tolist(), walked.used.tolist(), strict=True))


@pytest.mark.parametrize("rule", VERIFICATIONS)
@pytest.mark.parametrize("seed", range(4))
def test_the_device_walk_uses_the_same_numbers_and_yields_the_same_tokens_as_the_host(seed, rule):
    *given, expected = case(seed, rule)
    assert outcomes(walk.accept_sampled(*given, block=by(rule, given[2]))) == expected
    assert 0 < sum(accepted for accepted, _, _ in expected) < BATCH * DEPTH


def test_picked_drafts_need_no_q():
    p, _, drafts, cold, numbers, _ = case(1)
    drafts = walk.DraftTensors(drafts.tokens, torch.ones_like(drafts.picked), drafts.depth)
    one_hot = torch.nn.functional.one_hot(drafts.tokens, VOCAB).double()
    with_q = walk.accept_sampled(
        p, one_hot, walk.DraftTensors(drafts.tokens, drafts.picked, drafts.depth), cold, numbers
    )
    assert outcomes(walk.accept_sampled(p, None, drafts, cold, numbers)) == outcomes(with_q)


def test_greedy_acceptance_equals_sampled_acceptance_of_one_hot_probabilities():
    p, _, drafts, _, numbers, _ = case(2)
    one_hot = torch.nn.functional.one_hot(p.argmax(-1), VOCAB).double()
    all_certain = torch.ones(BATCH, dtype=torch.bool)
    right = torch.rand(BATCH, DEPTH, generator=torch.manual_seed(0)) < 0.7
    tokens = torch.where(right, p[:, :-1].argmax(-1), drafts.tokens)
    drafts = walk.DraftTensors(tokens, torch.ones_like(right), drafts.depth)
    slow = walk.accept_sampled(one_hot, None, drafts, all_certain, numbers)
    assert outcomes(walk.accept_greedy(p.argmax(-1), drafts)) == outcomes(slow)


def p_value_of_the_walk(rule, samples=200_000):
    """Return the chi-square p-value of the first two tokens of many walks, against the target's.

    p and q do not depend on earlier tokens; if a walk emits one token, the next one is drawn from p.
    """
    generator = torch.Generator().manual_seed(3)
    p = torch.softmax(torch.randn(1, DEPTH + 1, VOCAB, generator=generator).double() * 1.5, -1)
    q = torch.softmax(p.log()[:, :DEPTH] + torch.randn(1, DEPTH, VOCAB, generator=generator), -1)
    p, q = p.expand(samples, -1, -1), q.expand(samples, -1, -1)
    numbers = torch.rand(samples, 2 * DEPTH + 2, generator=generator, dtype=torch.double)
    tokens = torch.stack([walk.draw_tokens(q[:, i], numbers[:, i]) for i in range(DEPTH)], 1)
    drafts = walk.DraftTensors(
        tokens, torch.zeros_like(tokens, dtype=torch.bool), torch.full((samples,), DEPTH)
    )
    certain, block = torch.zeros(samples, dtype=torch.bool), torch.full((samples,), rule == "block")
    walked = walk.accept_sampled(p, q, drafts, certain, numbers[:, :-1], block=block)
    first = torch.where(walked.accepted > 0, tokens[:, 0], walked.token)
    after = torch.where(walked.accepted > 1, tokens[:, 1], walked.token)
    second = torch.where(walked.accepted > 0, after, walk.draw_tokens(p[:, 1], numbers[:, -1]))
    counts = torch.bincount(first * VOCAB + second, minlength=VOCAB**2).double()
    return chi_square_p(counts.numpy(), (p[0, 0, :, None] * p[0, 1]).flatten().numpy())


@pytest.mark.parametrize("rule", VERIFICATIONS)
def test_the_device_walk_yields_the_targets_distribution(rule):
    assert p_value_of_the_walk(rule) > 0.001


@pytest.mark.parametrize("rule", VERIFICATIONS)
@pytest.mark.parametrize("mutant", ["resample from p", "reuse a number"])
def test_the_chi_square_test_detects_a_wrong_walk(monkeypatch, mutant, rule):
    if mutant == "resample from p":
        monkeypatch.setattr(walk, "_residual", lambda p, q, drafts, at: p)
    else:
        monkeypatch.setattr(walk, "accept_sampled", _reusing(walk.accept_sampled))
    assert p_value_of_the_walk(rule) < 1e-6


def test_the_chi_square_test_detects_chances_without_a_cap(monkeypatch):
    def uncapped(ratio):
        return torch.cat((torch.ones_like(ratio[:, :1]), ratio.cumprod(-1)), -1).clamp(max=1.0)

    monkeypatch.setattr(walk, "_prefix_chances", uncapped)
    assert p_value_of_the_walk("block") < 1e-6


def _reusing(accept):
    def wrong(p, q, drafts, certain, uniform, *, block):
        same = uniform[:, :1].expand(-1, uniform.shape[1]).contiguous()
        return accept(p, q, drafts, certain, same, block=block)

    return wrong


WIDE = 1000
"""Tokens of the tests in float32: four blocks of :func:`draw_tokens`, the last one not full."""


@pytest.mark.parametrize("vocab", [7, WIDE])
def test_half_precision_logits_give_float32_probabilities_near_the_hosts(vocab):
    params = [SamplingParams(**settings) for settings in SETTINGS]
    logits = (torch.randn(len(params), 5, vocab, generator=torch.manual_seed(0)) * 3).bfloat16()
    found = walk.batch_probabilities(logits, shaping(params))
    assert found.dtype == torch.float32
    for own, rows, settings in zip(found, logits, params, strict=True):
        expected = host_probabilities(rows, settings)
        np.testing.assert_allclose(own.double().numpy(), expected, rtol=3e-6, atol=1e-12)
        assert (own.numpy()[expected > 1e-30] > 0).all(), "all tokens that the host keeps are kept"
        assert (own.numpy()[expected == 0] == 0).all(), "and no others"


def fewest(logits, temperature, top_k, top_p):
    """Return the tokens that top-k and top-p keep, by sums of Python's integers in the order of the rule."""
    scaled = (logits.float() - logits.float().max()) / torch.tensor(temperature, dtype=torch.float32)
    weights = (scaled.exp() * 2.0 ** walk.weight_bits(len(logits))).long().tolist()
    order = sorted(range(len(logits)), key=lambda i: (-float(logits[i]), i))
    if top_k:
        order = [i for i in order if logits[i] >= logits[order[min(top_k, len(order)) - 1]]]
    total, kept, sum_of_kept = sum(weights[i] for i in order), set(), 0
    for i in order:
        if top_p < 1 and sum_of_kept >= top_p * float(total):
            break
        kept.add(i)
        sum_of_kept += weights[i]
    return kept


@pytest.mark.parametrize("kind", ["random", "tied", "equal", "tiny", "steep"])
def test_half_precision_cuts_keep_the_fewest_tokens_by_exact_sums(kind):
    logits = torch.randn(6, 2, 40, generator=torch.manual_seed(2)) * 3
    logits = {
        "random": logits,
        "tied": logits.round(),
        "equal": torch.zeros_like(logits),
        "tiny": logits * 1e-6 * torch.tensor([1.0, -0.0] * 20),
        "steep": logits * 50,
    }[kind].bfloat16()
    params = [
        SamplingParams(temperature=t, top_p=p, top_k=k)
        for t, p, k in [(1, 0.8, 0), (0.7, 0.35, 5), (1.3, 0.999, 39), (1, 1, 3), (2, 0.01, 1), (1, 0.5, 80)]
    ]
    found = walk.batch_probabilities(logits, shaping(params))
    for rows, own, each in zip(logits, found, params, strict=True):
        for row, p in zip(rows, own, strict=True):
            kept = fewest(row, each.temperature, each.top_k, each.top_p)
            assert {i for i in kept if p[i] > 0} == set(p.nonzero()[:, 0].tolist())
            assert p.sum() == pytest.approx(1.0, abs=1e-6)
            left_out = [i for i in kept if p[i] == 0]  # nothing but tokens whose probability underflows
            assert all((row.max() - row[i]) / each.temperature > 80 for i in left_out)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_cuts_of_a_few_rows_at_a_time_are_the_same(monkeypatch, dtype):
    params = [SamplingParams(**settings) for settings in SETTINGS]
    logits = (torch.randn(len(params), 5, 50, generator=torch.manual_seed(0)) * 3).to(dtype)
    whole = walk.batch_probabilities(logits, shaping(params))
    monkeypatch.setattr(walk, "SORTED_AT_ONCE", 150)
    assert walk.batch_probabilities(logits, shaping(params)).equal(whole)


def test_a_float32_draw_inverts_the_cumulative_distribution_for_every_token():
    """Each token with a probability is drawn by the numbers of its interval, whose ends are float64 sums."""
    generator = torch.manual_seed(1)
    p = torch.softmax(torch.randn(1, WIDE, generator=generator) * 4, -1)
    p[0, 300:600] = 0.0  # a whole block without any probability, and parts of its neighbours
    ends = p.double().cumsum(-1)[0]
    inside = (torch.cat((torch.zeros(1).double(), ends[:-1])) + ends) / 2 / ends[-1]
    tokens = (p[0] > 0).nonzero()[:, 0]
    drawn = walk.draw_tokens(p.expand(len(tokens), -1), inside[tokens])
    assert drawn.tolist() == tokens.tolist()
    edges = torch.tensor([0.0, 1.0 - 2**-53], dtype=torch.double)
    assert walk.draw_tokens(p.expand(2, -1), edges).tolist() == [int(tokens[0]), int(tokens[-1])]


def p_value_of_float32_draws(samples=100_000, **cuts):
    """Return the chi-square p-value of float32 draws, of tokens and residual tokens, against float64."""
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(1, WIDE, generator=generator).bfloat16()
    params = SamplingParams(temperature=0.8, **cuts)
    p = walk.batch_probabilities(logits[None], shaping([params]))[0]
    exact = host_probabilities(logits, params)[0]
    numbers = torch.rand(samples, generator=generator, dtype=torch.double)
    drawn = torch.cat([walk.draw_tokens(p.expand(len(own), -1), own) for own in numbers.split(2000)])
    counts = torch.bincount(drawn, minlength=WIDE).double().numpy()
    assert (counts[exact == 0] == 0).all()
    return chi_square_p(counts[exact > 0], exact[exact > 0])


@pytest.mark.parametrize("cuts", [{}, {"top_p": 0.7}, {"top_k": 30, "top_p": 0.9}])
def test_float32_draws_follow_the_float64_distribution(cuts):
    assert p_value_of_float32_draws(**cuts) > 0.001


def test_the_chi_square_test_detects_a_smaller_top_p(monkeypatch):
    ceil = torch.Tensor.ceil_
    monkeypatch.setattr(torch.Tensor, "ceil_", lambda self: ceil(self.mul_(0.97)))
    with pytest.raises(AssertionError):
        assert p_value_of_float32_draws(top_k=30, top_p=0.9) > 1e-6


def test_the_chi_square_test_detects_draws_within_the_wrong_block(monkeypatch):
    monkeypatch.setattr(walk, "_BELOW_ONE", 0.5)  # numbers beyond a block's middle give its middle
    assert p_value_of_float32_draws() < 1e-6


@pytest.mark.parametrize("rule", VERIFICATIONS)
@pytest.mark.parametrize("seed", range(4))
def test_the_float32_walk_equals_the_float64_walk_of_the_same_numbers(seed, rule):
    p, q, drafts, cold, numbers, _ = case(seed)
    p, q = p.float(), q.float()
    expected = walk.accept_sampled(p.double(), q.double(), drafts, cold, numbers, block=by(rule, drafts))
    assert outcomes(walk.accept_sampled(p, q, drafts, cold, numbers, block=by(rule, drafts))) == outcomes(
        expected
    )
