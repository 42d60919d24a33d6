"""Every implementation of the acceptance rule against ``decoding/verify.py``, on the same inputs."""

from __future__ import annotations

import re
from ctypes import POINTER, addressof, byref, c_float, c_int64, pointer
from pathlib import Path

import numpy as np
import pytest
import specclient_local
import torch
from enumeration import Target, random_distribution, worst_error
from specclient_local.decoding import verify as rule
from specclient_local.decoding.verify import acceptance_probability, verify
from specclient_local.drafting.union import add_to_union
from specclient_local.model import sampling
from specclient_local.model.cuda_graphs.device_verify import (
    DraftTensors,
    SamplingTensors,
    accept_greedy,
    accept_sampled,
    batch_probabilities,
    draw_tokens,
)
from specclient_local.model.native.argmax import native_argmax
from specclient_local.model.native.build import library
from specclient_local.model.native.packed_weights import PackedWeights
from specclient_local.model.native.structs import (
    LayerStruct,
    ModelStruct,
    PassStruct,
    RoundStruct,
    SpanStruct,
)
from specclient_local.request.params import VERIFICATIONS
from specclient_local.request.sequence import RandomStream
from specclient_local.request.token_tree import ROOT, TokenTree, without_token
from specclient_local.training.losses import acceptance_chance, replay_greedy

VOCAB, DEPTH, BATCH = 9, 4, 96
NAN, INF = float("nan"), float("inf")
needs_compiler = pytest.mark.skipif(library() is None, reason="there is no C compiler")


# ---- greedy chains: logits [K + 1, V] of the target, and K drafted tokens ----


def first_largest(row):
    """Return the index chosen by the tie rule: the first NaN, otherwise the first of the largest logits."""
    values = [float(value) for value in row]
    for index, value in enumerate(values):
        if value != value:
            return index
    return values.index(max(values))


def favour(row, token):
    """Make a token the first of the largest logits of a row; later ties remain."""
    while (best := first_largest(row)) != token:
        row[[best, token]] = row[[token, best]]
        if best < token and first_largest(row) != token:
            row[first_largest(row)] = -3.0


def greedy_cases(nan=True):
    """Return partly accepted chains of each length, with ties and non-finite values."""
    rng = np.random.default_rng(0)
    cases = []
    for number in range(BATCH):
        length = number % (DEPTH + 1)
        logits = rng.integers(-2, 3, (length + 1, VOCAB)).astype(np.float32)  # few values: many ties
        if number % 3 == 0:
            logits = rng.normal(size=logits.shape).astype(np.float32)
        if nan and number % 7 == 0:
            logits[rng.integers(length + 1), rng.integers(VOCAB)] = NAN
        if nan and number % 11 == 0:
            logits[rng.integers(length + 1), rng.integers(VOCAB)] = rng.choice([INF, -INF])
        tokens = rng.permutation(VOCAB)[:length].tolist()
        for step in range(int(rng.integers(length + 1))):
            favour(logits[step], tokens[step])
        ties = np.flatnonzero(logits[0] == logits[0].max())
        if length and len(ties) > 1 and number % 5 == 0 and ties[1] not in tokens:
            tokens[0] = int(ties[1])  # as large as the first, but not the first
        cases.append((logits, tokens))
    return cases


class NoRandomness:
    """Greedy verification consumes no random number: p is one-hot, so every outcome is certain."""

    def accept(self, probability):
        assert probability in (0.0, 1.0)
        return probability == 1.0

    def draw(self, distribution):
        assert isinstance(distribution, int)
        return distribution


def expected_greedy(cases):
    found = []
    for logits, tokens in cases:
        one_hot = [first_largest(row) for row in logits]
        verdict = verify(TokenTree.chain(tokens), one_hot, NoRandomness())
        found.append((len(verdict.path), verdict.token))
    return found


def padded(cases):
    """Return logits [S, K + 1, V] and drafts of the cases as one batch."""
    logits = torch.zeros(len(cases), DEPTH + 1, VOCAB)
    tokens = torch.zeros(len(cases), DEPTH, dtype=torch.long)
    for i, (rows, own) in enumerate(cases):
        logits[i, : len(rows)] = torch.from_numpy(rows)
        tokens[i, : len(own)] = torch.tensor(own, dtype=torch.long)
    depth = torch.tensor([len(own) for _, own in cases])
    return logits, DraftTensors(tokens, torch.ones_like(tokens, dtype=torch.bool), depth)


def device_greedy(cases):
    logits, drafts = padded(cases)
    result = accept_greedy(logits.argmax(-1), drafts)
    return list(zip(result.accepted.tolist(), result.token.tolist(), strict=True))


def device_sampled_at_temperature_0(cases):
    logits, drafts = padded(cases)
    count = len(cases)
    cold = SamplingTensors(
        torch.zeros(count).double(), torch.ones(count).double(), torch.zeros(count, dtype=torch.long), False
    )
    uniform = torch.full((count, 2 * DEPTH + 1), 0.5, dtype=torch.double)
    certain = torch.ones(count, dtype=torch.bool)
    result = accept_sampled(batch_probabilities(logits, cold), None, drafts, certain, uniform)
    assert not result.used.any()
    return list(zip(result.accepted.tolist(), result.token.tolist(), strict=True))


def compiled_verify(cases):
    """Run ``specclient_verify`` on given logits: the pass has no rows to compute."""
    logits = np.concatenate([rows for rows, _ in cases])
    spans, ids, first = (SpanStruct * len(cases))(), [], 0
    for span, (rows, tokens) in zip(spans, cases, strict=True):
        span.first, span.rows = first, len(rows)
        first += len(rows)
        ids += [0, *tokens]
    numbers = (c_int64 * len(ids))(*ids)
    model = ModelStruct()
    model.head.outputs = VOCAB
    table = PassStruct(model=pointer(model), spans=len(cases), threads=1)
    table.ids, table.span, table.logits = addressof(numbers), addressof(spans), logits.ctypes.data
    accepted, tokens, values = (c_int64 * len(cases))(), (c_int64 * len(cases))(), (c_float * first)()
    run = library().specclient_verify
    run.argtypes = [POINTER(PassStruct), POINTER(c_int64), POINTER(c_int64), POINTER(c_float)]
    run.restype = None
    run(byref(table), accepted, tokens, values)
    return list(zip(accepted, tokens, strict=True))


class LookupModel:
    """A model without layers whose logits after a token are a row of a table [V + 1, V]."""

    def __init__(self, table):
        states = VOCAB + 1  # the root is the state after the last token of the vocabulary
        matrix = torch.zeros(VOCAB, states)
        matrix[:, : len(table)] = torch.from_numpy(np.asarray(table, dtype=np.float32)).T
        self.matrix, self.packed = matrix, PackedWeights([tuple(matrix.shape)])
        self.embedding, self.ones = torch.eye(states), torch.ones(states)
        layer = (LayerStruct * 1)()
        layer[0].input_norm = self.ones.data_ptr()
        self.keep = layer
        self.model = ModelStruct(
            hidden=states,
            heads=1,
            kv_heads=1,
            dim=2,
            eps=1e-6,
            embedding=self.embedding.data_ptr(),
            head=self.packed.linear(matrix, None),
            layer=layer,
        )
        self.buffers = [torch.zeros((DEPTH + 1) * states) for _ in range(2)]
        self.logits = torch.zeros(DEPTH + 1, VOCAB)
        self.span, self.positions = SpanStruct(), (c_int64 * (DEPTH + 1))()

    def pass_over(self, ids, rows=1):
        table = PassStruct(model=pointer(self.model), rows=rows, spans=1, wanted=rows, threads=1)
        self.span.rows = rows
        table.ids, table.positions, table.span = ids, addressof(self.positions), addressof(self.span)
        table.x, table.h = (buffer.data_ptr() for buffer in self.buffers)
        table.logits = self.logits.data_ptr()
        return table


def compiled_round(cases):
    """Run ``specclient_round`` with lookup models: the draft's gives the chain, the target's the logits.

    A round drafts at least one token; empty chains are verified by ``specclient_verify``.
    """
    run = library().specclient_round
    run.argtypes, run.restype = [POINTER(RoundStruct)], None
    found = []
    for logits, tokens in cases:
        if not tokens:
            found += compiled_verify([(logits, tokens)])
            continue
        states = [VOCAB, *tokens]
        target, draft = np.zeros((VOCAB + 1, VOCAB)), np.zeros((VOCAB + 1, VOCAB))
        target[states] = logits
        for state, token in zip(states, tokens, strict=False):
            draft[state, token] = 1.0
        one, other = LookupModel(target), LookupModel(draft)
        ids, values = (c_int64 * (DEPTH + 1))(VOCAB), (c_float * (DEPTH + 1))()
        root, request, drafted, accepted, token = c_int64(VOCAB), *(c_int64(0) for _ in range(4))
        work = RoundStruct(
            target=pointer(one.pass_over(addressof(ids), 1 + len(tokens))),
            draft=pointer(other.pass_over(addressof(root))),
            drafting=addressof(request),
            vocab=VOCAB,
            ids=addressof(ids),
            drafted=addressof(drafted),
            accepted=addressof(accepted),
            tokens=addressof(token),
            values=addressof(values),
        )
        run(byref(work))
        assert ids[1 : 1 + drafted.value] == tokens
        found.append((accepted.value, token.value))
    return found


@pytest.mark.parametrize("implementation", [device_greedy, device_sampled_at_temperature_0])
def test_device_results_of_greedy_chains_equal_verify(implementation):
    cases = greedy_cases()
    assert implementation(cases) == expected_greedy(cases)


@needs_compiler
@pytest.mark.parametrize(("implementation", "nan"), [(compiled_verify, True), (compiled_round, False)])
def test_compiled_results_of_greedy_chains_equal_verify(implementation, nan):
    cases = greedy_cases(nan)  # a NaN in a matrix would reach all rows of the lookup model
    assert implementation(cases) == expected_greedy(cases)


def test_the_greedy_cases_cover_every_outcome():
    outcomes = {
        (len(tokens), accepted)
        for (_, tokens), (accepted, _) in zip(greedy_cases(), expected_greedy(greedy_cases()), strict=True)
    }
    assert outcomes == {(length, accepted) for length in range(DEPTH + 1) for accepted in range(length + 1)}


@pytest.mark.parametrize("compiled", [pytest.param(True, marks=needs_compiler), False])
def test_argmax_follows_the_tie_rule(monkeypatch, compiled):
    rows = [torch.from_numpy(logits) for logits, _ in greedy_cases()]
    if compiled:
        places, values = native_argmax(rows)
    else:
        monkeypatch.setattr(sampling, "native_argmax", lambda logits: None)
        places, values = sampling._largest(rows)
    expected = [first_largest(row) for logits in rows for row in logits]
    assert places == expected
    chosen = [float(row[place]) for row, place in zip(torch.cat(rows), expected, strict=True)]
    np.testing.assert_array_equal(values, chosen)


# ---- sampled chains: p [K + 1, V], q [K, V] or picked tokens, one random stream per request ----


class CountingStream(RandomStream):
    """A random stream that counts the numbers used."""

    taken = 0

    def uniform(self):
        self.taken += 1
        return super().uniform()


def sampled_batch(seed, rule):
    """Return a batch for the device, and verify.py's (accepted, token, numbers used) for each request.

    A fifth of the requests are at temperature 0. Of some, tokens are picked; as a block, all or none of them.
    """
    rng = np.random.default_rng(seed)
    certain = rng.random(BATCH) < 0.2
    p, q = rng.dirichlet(np.full(VOCAB, 0.5), (2, BATCH, DEPTH + 1))
    p[rng.random(p.shape) < 0.3] = 0.0  # rejection is certain there
    p[..., 0] += 1e-3
    equal = rng.random(BATCH) < 0.2
    p[equal] = q[equal]  # acceptance is certain
    p /= p.sum(-1, keepdims=True)
    for p_or_q in (p, q):
        p_or_q[certain] = np.eye(VOCAB)[p_or_q[certain].argmax(-1)]
    picked = rng.random((BATCH, DEPTH)) < 0.3
    if rule == "block":
        picked[:] = picked[:, :1]
    depth = rng.integers(0, DEPTH + 1, BATCH)
    tokens = np.zeros((BATCH, DEPTH), dtype=int)
    expected, uniform = [], []
    for i in range(BATCH):
        uniform.append(RandomStream(seed * BATCH + i).peek(2 * DEPTH + 1))
        stream, tree = CountingStream(seed * BATCH + i), TokenTree()
        for step in range(depth[i]):
            p_or_q = int(q[i, step].argmax()) if certain[i] else q[i, step]
            token = int(rng.integers(VOCAB)) if picked[i, step] else stream.draw(p_or_q)
            tree.add(step - 1, token, None if picked[i, step] else p_or_q)
            tokens[i, step] = token
        target = [int(p_or_q.argmax()) if certain[i] else p_or_q for p_or_q in p[i, : depth[i] + 1]]
        verdict = verify(tree, target, stream, rule)
        expected.append((len(verdict.path), verdict.token, stream.taken))
    drafts = DraftTensors(torch.from_numpy(tokens), torch.from_numpy(picked), torch.from_numpy(depth))
    numbers = torch.tensor(uniform, dtype=torch.double)
    all_p = torch.from_numpy(p), torch.from_numpy(q[:, :DEPTH].copy())
    return (*all_p, drafts, torch.from_numpy(certain), numbers), expected


def verified_as_blocks(drafts, rule):
    """Return which requests of a batch are verified as a block: by that rule, those with drawn tokens."""
    return ~drafts.picked.any(-1) & torch.tensor(rule == "block")


@pytest.mark.parametrize("rule", VERIFICATIONS)
@pytest.mark.parametrize("seed", range(4))
def test_device_results_of_sampled_chains_equal_verify(seed, rule):
    batch, expected = sampled_batch(seed, rule)
    result = accept_sampled(*batch, block=verified_as_blocks(batch[2], rule))
    columns = result.accepted.tolist(), result.token.tolist(), result.used.tolist()
    assert list(zip(*columns, strict=True)) == expected
    assert 0 < sum(accepted for accepted, _, _ in expected) < BATCH * DEPTH


def test_a_batch_may_mix_both_rules():
    by_rule = {}
    batch, _ = sampled_batch(5, "block")
    mixed = torch.arange(BATCH) % 2 == 0
    for name, own in (("block", batch[2].depth >= 0), ("token", batch[2].depth < 0), ("mixed", mixed)):
        result = accept_sampled(*batch, block=own & verified_as_blocks(batch[2], "block"))
        by_rule[name] = torch.stack((result.accepted, result.token, result.used), 1)
    expected = torch.where(mixed[:, None], by_rule["block"], by_rule["token"])
    assert torch.equal(by_rule["mixed"], expected)
    assert not torch.equal(by_rule["block"], by_rule["token"])


def test_host_and_device_draw_the_same_tokens():
    rng = np.random.default_rng(5)
    p = rng.dirichlet(np.full(VOCAB, 0.3), BATCH)
    p[rng.random(p.shape) < 0.3] = 0.0
    p[:, 3] += 0.1
    p /= p.sum(-1, keepdims=True)
    streams = [RandomStream(seed) for seed in range(BATCH)]
    uniform = torch.tensor([stream.peek(1)[0] for stream in streams], dtype=torch.double)
    drawn = [stream.draw(p_or_q) for stream, p_or_q in zip(streams, p, strict=True)]
    assert draw_tokens(torch.from_numpy(p), uniform).tolist() == drawn


@pytest.mark.parametrize("number", [0.0, 0.25, 0.5])
def test_a_random_number_on_a_boundary_draws_no_token_of_probability_zero(number):
    class Fixed(RandomStream):
        def uniform(self):
            return number

    p = np.array([0.0, 0.25, 0.0, 0.25, 0.5])
    drawn = Fixed(0).draw(p)
    assert p[drawn] > 0.0
    assert draw_tokens(torch.from_numpy(p)[None], torch.tensor([number], dtype=torch.double)).tolist() == [
        drawn
    ]


# ---- trees: only verify.py walks them; two other modules prepare their siblings ----


@pytest.mark.parametrize("seed", range(20))
def test_a_union_with_merged_siblings_keeps_the_distribution_of_the_target(seed):
    rng = np.random.default_rng(seed)
    q, target, picked = random_distribution(rng), Target(rng), rng.integers(0, 4, 2).tolist()

    def propose(choose):
        union, drawn = TokenTree(), TokenTree()
        drawn.add(ROOT, choose.draw(q), q)
        for tree in (drawn, TokenTree.chain(picked), TokenTree.chain(picked[:1])):
            add_to_union(union, tree)
        return union

    assert worst_error(propose, target, horizon=2) < 1e-12


@pytest.mark.parametrize("seed", range(20))
def test_siblings_drawn_without_replacement_keep_the_distribution_of_the_target(seed):
    rng = np.random.default_rng(seed)
    q, target = random_distribution(rng), Target(rng)

    def propose(choose):
        first = choose.draw(q)
        tree, rest = TokenTree(), without_token(q, first)
        tree.branch(ROOT, [first, choose.draw(rest)], q)
        return tree

    assert worst_error(propose, target, horizon=2) < 1e-12


@pytest.mark.parametrize("seed", range(20))
def test_merging_equal_picked_siblings_changes_no_greedy_outcome(seed):
    rng = np.random.default_rng(seed)
    one, other = rng.integers(0, VOCAB, (2, 3)).tolist()
    merged, apart = TokenTree(), TokenTree()
    for tokens in (one, other):
        level = TokenTree()
        for token in tokens:
            level.add(ROOT, token)
            apart.add(ROOT, token)
        add_to_union(merged, level)
    assert len(merged) < len(apart) or len({*one, *other}) == 6
    emitted = []
    for tree in (merged, apart):
        verdict = verify(tree, [seed % VOCAB] * (len(tree) + 1), NoRandomness())
        emitted.append(([tree.tokens[node] for node in verdict.path], verdict.token))
    assert emitted[0] == emitted[1]


def test_equal_drawn_siblings_are_not_merged():
    """They were drawn independently, so verify tries each with its own q."""
    union, q = TokenTree(), np.full(VOCAB, 1 / VOCAB)
    for _ in range(2):
        add_to_union(union, TokenTree.chain([4], [q]))
    assert union.tokens == [4, 4]


# ---- training statistics that depend on the acceptance rule ----


def test_acceptance_chance_in_training_equals_the_rules_expectation():
    logits = torch.randn(2, 6, VOCAB, generator=torch.manual_seed(0))
    p, q = (torch.softmax(own, -1).double().numpy() for own in logits)
    expected = [
        sum(b[token] * acceptance_probability(a, b, token) for token in range(VOCAB))
        for a, b in zip(p, q, strict=True)
    ]
    np.testing.assert_allclose(acceptance_chance(logits[1], logits[0]).numpy(), expected, atol=1e-6)


def test_replayed_greedy_rounds_in_training_equal_verify():
    rng = np.random.default_rng(1)
    answer = rng.integers(0, VOCAB, 60).tolist()
    drafted = [token if rng.random() < 0.7 else (token + 1) % VOCAB for token in answer]
    at = rounds = first = tokens = 0
    while at + DEPTH < len(answer):
        tree = TokenTree.chain(drafted[at : at + DEPTH])
        accepted = len(verify(tree, answer[at : at + DEPTH + 1], NoRandomness()).path)
        rounds, first, tokens = rounds + 1, first + (accepted > 0), tokens + accepted + 1
        at += accepted + 1
    agrees = [a == b for a, b in zip(answer, drafted, strict=True)]
    assert replay_greedy(agrees, DEPTH) == (rounds, first, tokens)


def test_every_implementation_listed_in_verifys_docstring_exists():
    package, text = Path(specclient_local.__file__).parent, rule.__doc__
    paths = [path for path in re.findall(r"``([\w/]+/\w+\.(?:py|c|h))``", text) if "tests" not in path]
    sources = "\n".join((package / path).read_text(encoding="utf-8") for path in paths)
    names = set(re.findall(r"``(\w+)``", text)) - {"specclient_local"}
    assert len(paths) >= 9
    assert len(names) >= 15
    defined = r"\b(?:def |int64_t |void ){0}\(|^{0}\b.* = |^#define {0}\b"  # functions and constants
    assert [name for name in names if not re.search(defined.format(name), sources, re.MULTILINE)] == []
