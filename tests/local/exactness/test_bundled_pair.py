"""The bundled pair on held-out source code: greedy speculation gives the tokens of greedy decoding."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import islice

import numpy as np
import pytest
from p_values import chi_square_p
from specclient_local.api.backend import BUNDLED
from specclient_local.engine.engine import Engine
from specclient_local.model import decoder
from specclient_local.request.params import VERIFICATIONS
from specclient_local.training.corpus import split_modules

from specclient.errors import CheckpointError

PROMPTS = 200
#: Of these, how many an ordinary run tests; ``make soak`` tests all of them, with longer answers.
FEW = 120
NEW_TOKENS = 12


@pytest.fixture(scope="module")
def pair():
    with Engine.load(BUNDLED / "target", BUNDLED / "draft", threads=1) as engine:
        yield engine


@pytest.fixture(scope="module")
def prompts(pair):
    """Return two hundred excerpts of held-out modules: the start token and text, 32 to 64 tokens in all."""
    rng, cuts = random.Random(0), []
    sources = [module.text for module in split_modules("heldout")]
    while len(cuts) < PROMPTS:
        lines = rng.choice(sources).splitlines(keepends=True)
        ids = pair.tokenizer.encode("".join(lines[rng.randrange(len(lines)) :][:40]))
        length = rng.randint(32, 64)
        if len(ids) > length:
            cuts.append(ids[:length])
    return cuts


@pytest.fixture(scope="module")
def plain(pair, prompts):
    """Return a cached function from a prompt's index to its answer by plain decoding."""
    return cache(lambda i: pair.generate(prompts[i], max_tokens=NEW_TOKENS, method="plain").token_ids)


@pytest.mark.parametrize("length", range(1, 9))
def test_greedy_speculation_equals_greedy_decoding(pair, prompts, plain, length, record_property):
    """Each prompt is tested with one of eight draft lengths; the soak test uses all, and longer answers."""
    drafted = accepted = 0
    for i in range(length % 8, FEW, 8):
        answer = pair.generate(prompts[i], max_tokens=NEW_TOKENS, draft_length=length)
        assert answer.token_ids == plain(i), f"prompt {i}, draft length {length}"
        drafted += answer.speculation.drafted
        accepted += answer.speculation.accepted
    record_property("acceptance_rate", accepted / drafted)
    print(f"draft length {length}: {accepted} of {drafted} drafts accepted over {FEW // 8} prompts")
    assert accepted > 0.2 * drafted


@pytest.fixture(scope="module")
def engine_with_heads():
    """Load the bundled target with its bundled heads."""
    with Engine.load("demo", heads=["bundled:eagle3", "bundled:medusa"], threads=1) as engine:
        yield engine


HEADS = {
    "eagle chain": {"method": "eagle", "draft_length": 5},
    "eagle tree": {"method": "eagle", "draft_length": 5, "draft_tree": "grow"},
    "medusa tree": {"method": "medusa", "draft_length": 6, "draft_tree": "grow"},
}


@pytest.mark.parametrize("way", HEADS)
def test_bundled_heads_have_good_acceptance_and_change_no_answer(engine_with_heads, prompts, plain, way):
    """Counts are the same on every machine, since the answers are greedy and the draft settings fixed."""
    tokens = rounds = 0
    for i, prompt in enumerate(prompts[:12]):
        answer = engine_with_heads.generate(prompt, max_tokens=NEW_TOKENS, **HEADS[way])
        assert answer.token_ids == plain(i)
        tokens += len(answer.token_ids)
        rounds += answer.speculation.steps
    print(f"{way}: {tokens / rounds:.2f} tokens a pass")
    assert tokens > 2.0 * rounds


def test_the_bundled_heads_are_at_most_6_mb():
    sizes = [p.stat().st_size for name in ("eagle3", "medusa") for p in (BUNDLED / name).iterdir()]
    assert sum(sizes) <= 6_000_000


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        ("demo", {"heads": "bundled:eagle4"}, "mean 'bundled:eagle3'.*bundled:eagle3, bundled:medusa"),
        ("demo", {"heads": "bundled:target"}, "heads takes .* bundled:medusa for demo"),
        ("dmeo", {}, "dmeo is not a folder; did you mean 'demo'"),
        ("demo", {"draft": "demo"}, "demo is a pair, of bundled:target and bundled:draft"),
    ],
)
def test_wrong_names_of_bundled_models_are_rejected_with_the_one_that_was_meant(model, options, message):
    with pytest.raises(CheckpointError, match=message):
        Engine.load(model, **options)


def test_an_unknown_option_is_rejected_with_the_one_that_was_meant():
    with pytest.raises(
        TypeError, match=r"argument 'methd'; did you mean 'method'\? Allowed are draft, method"
    ):
        Engine.load("demo", methd="plain")  # type: ignore[arg-type]


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("way", HEADS)
def test_bundled_heads_change_no_long_answer(engine_with_heads, prompts, way):
    for i, prompt in enumerate(prompts):
        expected = engine_with_heads.generate(prompt, max_tokens=128, method="plain").token_ids
        answer = engine_with_heads.generate(prompt, max_tokens=128, **HEADS[way])
        assert answer.token_ids == expected, f"prompt {i}, {way}"


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_greedy_speculation_equals_greedy_decoding_over_long_answers(pair, prompts):
    for i, prompt in enumerate(prompts):
        expected = pair.generate(prompt, max_tokens=128, method="plain").token_ids
        for length in (*range(1, 9), None):
            answer = pair.generate(prompt, max_tokens=128, draft_length=length)
            assert answer.token_ids == expected, f"prompt {i}, draft length {length}"


def test_greedy_speculation_equals_greedy_decoding_without_a_compiler(prompts, monkeypatch):
    """Here torch computes the passes, with the kernels chosen for it."""
    monkeypatch.setattr(decoder, "native_passes", lambda *given: None)
    with Engine.load(BUNDLED / "target", BUNDLED / "draft", threads=1) as engine:
        assert not engine._speculator.target.decoder.exact_rows
        for i, prompt in enumerate(prompts[:16]):
            plain = engine.generate(prompt, max_tokens=NEW_TOKENS, method="plain")
            drafted = engine.generate(prompt, max_tokens=NEW_TOKENS, draft_length=1 + i % 8)
            assert drafted.token_ids == plain.token_ids


def test_the_pair_has_a_mean_accepted_length_above_1_5(pair):
    answer = pair.generate("def fibonacci(n):\n", max_tokens=64, draft_length=4)
    assert answer.speculation.mean_accepted_length > 1.5


SAMPLES, TOP_K = 1200, 4
SAMPLED = {"temperature": 1.0, "top_k": TOP_K}


def continuations(pair, prompt):
    """Return the tokens that may follow a prompt, their probabilities, and the same after each of them.

    The engine's own log-probabilities of the whole vocabulary's best tokens, renormalised over ``top_k``.
    """

    def after(ids):
        (score,) = pair.generate(ids, max_tokens=1, method="plain", logprobs=TOP_K).logprobs
        tokens, logprobs = zip(*score.top[:TOP_K], strict=True)
        p = np.exp(np.array(logprobs))
        return list(tokens), p / p.sum()

    first, p = after(prompt)
    return first, p, [after([*prompt, token]) for token in first]


def begin_answers(engine, prompt, **params):
    """Return the first two tokens of an answer for each seed, and the accepted drafts of their rounds.

    The rest of the answers is cancelled, and not computed. The engine's thread must not run.
    """
    seeds, begun = iter(range(SAMPLES)), []

    def add(seed):
        tokens, accepted = [], []

        def sink(event):
            if isinstance(event, BaseException):
                begun.append(event)
                return
            tokens.extend(event.token_ids)
            accepted.extend(event.drafted)
            if len(tokens) >= 2:
                engine.cancel(number)
                begun.append((tokens[:2], sum(accepted)))
                following = next(seeds, None)
                if following is not None:
                    add(following)

        number = engine.add(prompt, sink, seed=seed, **params)

    for seed in islice(seeds, engine.slots):
        add(seed)
    while engine.step():
        pass
    return begun


@pytest.mark.parametrize("rule", VERIFICATIONS)
def test_sampled_tokens_of_the_bundled_pair_follow_the_targets_distribution(pair, prompts, rule):
    """Two tokens of chains of four, in rounds of the engine, against the target's own log-probabilities."""
    prompt, counts = prompts[3], np.zeros((TOP_K, TOP_K))
    first, p, after = continuations(pair, prompt)
    total = 0
    given = {"max_tokens": 5, "draft_length": 4, "verification": rule, **SAMPLED}
    with Engine.load(BUNDLED / "target", BUNDLED / "draft", threads=1) as engine:
        begun = begin_answers(engine, prompt, **given)
    assert len(begun) == SAMPLES
    for (one, other), accepted in begun:
        row = first.index(one)
        counts[row, after[row][0].index(other)] += 1
        total += accepted
    expected = p[:, None] * np.stack([each for _, each in after])
    found = chi_square_p(counts, expected)
    print(f"chi-square of the bundled pair by {rule}: p = {found:.3f}, {total} drafted tokens accepted")
    assert found > 0.001
    assert total > SAMPLES


def test_a_block_accepts_no_fewer_tokens_of_the_bundled_pair(pair, prompts):
    """Over many sampled answers; that it is so on average is proved by enumeration."""
    lengths = {}
    for rule in VERIFICATIONS:
        steps = accepted = 0
        sampled = {"max_tokens": 48, "temperature": 1.0, "draft_length": 6, "verification": rule}
        with ThreadPoolExecutor(pair.slots) as threads:
            answers = threads.map(lambda i: pair.generate(prompts[i], seed=i, **sampled), range(24))  # noqa: B023
            for answer in answers:
                steps += answer.speculation.steps
                accepted += answer.speculation.accepted
        lengths[rule] = 1 + accepted / steps
    print(f"mean accepted length: {lengths}")
    assert lengths["block"] > lengths["token"]


def test_demo_is_the_bundled_pair(prompts, plain):
    with Engine.load("demo", threads=1) as engine:
        answer = engine.generate(prompts[0], max_tokens=len(plain(0)), temperature=0.0)
    assert answer.token_ids == plain(0)
    assert answer.speculation.method == "draft"
