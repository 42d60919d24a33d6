"""Token scores: against transformers, against the engine's greedy choices, and with every method."""

from __future__ import annotations

import pytest
import torch
from specclient_local.model.decoder_runner import DecoderRunner
from specclient_local.model.scoring import token_scores
from tiny_models import load

from specclient.errors import BadRequestError, ContextOverflowError, EngineError

PROMPT = "def fibonacci(n):\n    return"


@pytest.fixture(scope="module")
def engine(checkpoint):
    with load(checkpoint(eos_token_id=None), checkpoint(eos_token_id=None, seed=4)) as engine:
        yield engine


@pytest.fixture(scope="module")
def identical_pair(checkpoint):
    """Load an engine whose draft is the target, so that every drafted token is accepted."""
    folder = checkpoint(eos_token_id=None)
    with load(folder, folder) as engine:
        yield engine


def pass_rows(monkeypatch):
    """Return a list that gets the row count of each pass."""
    rows, original = [], DecoderRunner.run_pass

    def counting(self, parts, **options):
        rows.append(sum(part.rows for part in parts))
        return original(self, parts, **options)

    monkeypatch.setattr(DecoderRunner, "run_pass", counting)
    return rows


def expected(folder, ids):
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.inference_mode():
        return torch.log_softmax(model(torch.tensor([ids])).logits[0].float(), dim=-1)


@pytest.mark.parametrize("kind", ["llama", "mistral", "qwen2", "qwen3"])
def test_scores_equal_transformers_log_softmax(checkpoint, kind):
    folder = checkpoint(kind=kind, spread=0.2)
    ids = torch.randint(0, 300, (60,), generator=torch.Generator().manual_seed(1)).tolist()
    reference = expected(folder, ids)
    with load(folder) as engine:
        scored = engine.score(ids, top=5)
    assert scored.token_ids == ids
    assert scored.scores[0] is None
    for i, score in enumerate(scored.scores[1:], 1):
        assert score.token == ids[i]
        assert score.logprob == pytest.approx(reference[i - 1, ids[i]].item(), abs=1e-4)
        values, tokens = reference[i - 1].topk(5)
        assert [token for token, _ in score.top] == tokens.tolist()
        assert [logprob for _, logprob in score.top] == pytest.approx(values.tolist(), abs=1e-4)
        ahead = reference[i - 1] - reference[i - 1, ids[i]]  # tokens within rounding may rank on either side
        assert int((ahead > 1e-4).sum()) < score.rank <= int((ahead >= -1e-4).sum())


@pytest.mark.parametrize("length", [2, 17, 256, 257, 258, 511, 513, 700])
def test_long_prompts_are_scored_in_several_passes(checkpoint, length):
    folder = checkpoint(max_position_embeddings=1024, spread=0.2)
    ids = torch.randint(0, 300, (length,), generator=torch.Generator().manual_seed(2)).tolist()
    reference = expected(folder, ids)
    want = [reference[i - 1, ids[i]].item() for i in range(1, length)]
    with load(folder) as engine:
        plain = engine.generate(ids, max_tokens=3)
        for scored in (
            engine.score(ids, top=0),
            engine.generate(ids, max_tokens=1, prompt_logprobs=0).scored,
            engine.generate(ids, max_tokens=3, prompt_logprobs=0).scored,
        ):
            assert [score.logprob for score in scored.scores[1:]] == pytest.approx(want, abs=1e-4)
            assert {score.top for score in scored.scores[1:]} == {()}
        assert engine.generate(ids, max_tokens=3, prompt_logprobs=0).token_ids == plain.token_ids


def test_greedy_continuations_have_rank_one(engine):
    for prompt in (PROMPT, "x", "\u00e9\u4e2d", [5, 9, 9]):
        answer = engine.generate(prompt, max_tokens=40)
        whole = [*answer.prompt_token_ids, *answer.token_ids]
        scored = engine.score(whole)
        assert [score.rank for score in scored.scores[answer.prompt_tokens :]] == [1] * 40
        changed = [*whole]
        changed[answer.prompt_tokens + 3] = (whole[answer.prompt_tokens + 3] + 1) % 300
        score = engine.score(changed).scores[answer.prompt_tokens + 3]
        assert score.rank > 1
        assert score.top[0][0] == whole[answer.prompt_tokens + 3]


def test_equal_logits_are_ranked_by_id_like_the_greedy_choice():
    logits = torch.tensor([[1.0, 3.0, 3.0, 0.0, 3.0]]).repeat(5, 1)
    scores = token_scores(logits, [0, 1, 2, 3, 4], 1)
    assert [score.rank for score in scores] == [4, 1, 2, 5, 3]
    assert {score.top[0][0] for score in scores} == {1}
    assert logits[0].argmax() == 1


def test_alternatives_are_limited_to_the_vocabulary():
    assert len(token_scores(torch.zeros(1, 4), [2], 20)[0].top) == 4


def test_a_prompt_is_scored_in_the_pass_that_gives_the_first_token(engine, monkeypatch):
    ids = engine.tokenizer.encode(PROMPT)
    rows = pass_rows(monkeypatch)
    answer = engine.generate(ids, max_tokens=1, prompt_logprobs=1)
    assert rows == [len(ids)]
    assert len(answer.scored.scores) == len(ids)
    rows.clear()
    engine.score(ids)
    assert rows == [len(ids) - 1]
    rows.clear()
    assert engine.generate(ids, max_tokens=1).token_ids == answer.token_ids


def test_scoring_a_prompt_does_not_change_its_answer(engine, identical_pair):
    for one in (engine, identical_pair):
        plain = one.generate(PROMPT, max_tokens=40, method="plain")
        for method in ("plain", "draft"):
            scored = one.generate(PROMPT, max_tokens=40, method=method, prompt_logprobs=2)
            assert scored.token_ids == plain.token_ids
            assert len(scored.token_ids) == scored.speculation.steps + (scored.speculation.accepted or 0)
        seeded = [
            one.generate(PROMPT, max_tokens=30, temperature=1.0, seed=3, method="plain", prompt_logprobs=p)
            for p in (None, 0)
        ]
        assert seeded[0].token_ids == seeded[1].token_ids


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_logprobs_equal_prompt_scores_for_every_draft_length(engine, identical_pair, temperature):
    for one in (engine, identical_pair):
        for length in (0, 1, 3, 8):
            answer = one.generate(
                PROMPT, max_tokens=30, draft_length=length, temperature=temperature, seed=5, logprobs=3
            )
            whole = one.score([*answer.prompt_token_ids, *answer.token_ids], top=3)
            want = whole.scores[answer.prompt_tokens :]
            assert [score.token for score in answer.logprobs] == answer.token_ids
            assert [score.rank for score in answer.logprobs] == [score.rank for score in want]
            for got, expected in zip(answer.logprobs, want, strict=True):
                assert got.logprob == pytest.approx(expected.logprob, abs=1e-4)
                assert [token for token, _ in got.top] == [token for token, _ in expected.top]


def test_logprobs_of_speculative_decoding_equal_plain_decoding(identical_pair):
    plain = identical_pair.generate(PROMPT, max_tokens=40, method="plain", logprobs=20)
    for length in (1, 4, 8, None):
        drafted = identical_pair.generate(PROMPT, max_tokens=40, draft_length=length, logprobs=20)
        assert length is None or drafted.speculation.accepted > 10
        for got, want in zip(drafted.logprobs, plain.logprobs, strict=True):
            assert (got.token, got.rank) == (want.token, want.rank)
            assert got.logprob == pytest.approx(want.logprob, abs=1e-5)
            assert dict(got.top) == pytest.approx(dict(want.top), abs=1e-5)


def test_a_stream_has_the_same_scores(identical_pair):
    whole = identical_pair.generate(PROMPT, max_tokens=20, draft_length=4, logprobs=1, prompt_logprobs=1)
    pieces = list(identical_pair.stream(PROMPT, max_tokens=20, draft_length=4, logprobs=1, prompt_logprobs=1))
    assert [score for piece in pieces for score in piece.logprobs] == whole.logprobs
    assert pieces[0].prompt_token_ids == whole.prompt_token_ids
    assert pieces[0].scored == whole.scored
    assert {(piece.prompt_token_ids, piece.scored) for piece in pieces[1:]} == {(None, None)}


def test_logprobs_end_with_the_answer(identical_pair):
    free = identical_pair.generate(PROMPT, max_tokens=20, logprobs=0)
    stopped = identical_pair.generate(PROMPT, max_tokens=20, logprobs=0, draft_length=8, stop=free.text[3:6])
    assert [score.token for score in stopped.logprobs] == stopped.token_ids
    assert len(stopped.token_ids) < 20
    assert identical_pair.generate(PROMPT, max_tokens=3).logprobs is None


def test_a_prompt_of_one_token_has_nothing_to_score(engine):
    assert engine.score([7]).scores == [None]
    answer = engine.generate([7], max_tokens=2, prompt_logprobs=0)
    assert answer.scored.scores == [None]
    assert answer.token_ids == engine.generate([7], max_tokens=2).token_ids


def test_prompts_up_to_the_context_length_can_be_scored(engine):
    assert len(engine.score([7] * 128).scores) == 128
    with pytest.raises(ContextOverflowError, match="129 prompt tokens and 0 new ones exceed"):
        engine.score([7] * 129)


def test_scoring_waits_for_a_slot_and_can_be_cancelled(checkpoint):
    with load(checkpoint(max_position_embeddings=1024), slots=1) as engine:
        first, second, third = [], [], []
        engine.add([7] * 600, first.append, max_tokens=0, prompt_logprobs=0)
        number = engine.add([7] * 600, second.append, max_tokens=0, prompt_logprobs=0)
        engine.add([7] * 3, third.append, max_tokens=2)
        engine.step()
        engine.step()
        assert first + second + third == []
        engine.step()
        assert first[-1].generation.finish_reason == "length"
        assert first[-1].generation.token_ids == []
        engine.step()
        engine.cancel(number)
        while engine.step():
            pass
        assert not second
        assert third[-1].generation is not None
        assert len(engine.score([7] * 3).scores) == 3


def test_non_finite_logits_fail_only_that_request(checkpoint, monkeypatch):
    with load(checkpoint()) as engine:
        decoder = engine._speculator.target.decoder
        forward = decoder.forward
        monkeypatch.setattr(decoder, "forward", lambda *pass_: forward(*pass_) * torch.nan)
        with pytest.raises(EngineError, match="not finite"):
            engine.score("x y z")
        monkeypatch.undo()
        assert engine.score("x y z").scores[1].logprob < 0


@pytest.mark.parametrize(
    ("params", "name"),
    [
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 0, "logprobs": 1}, "max_tokens"),
        ({"logprobs": 21}, "logprobs"),
        ({"logprobs": True}, "logprobs"),
        ({"prompt_logprobs": -1}, "prompt_logprobs"),
        ({"prompt_logprobs": "1"}, "prompt_logprobs"),
    ],
)
def test_invalid_values_raise_with_the_parameters_name(engine, params, name):
    with pytest.raises(BadRequestError) as caught:
        engine.generate("x", **params)
    assert caught.value.param == name
