"""Building a sequence: its logits processors, invalid parameters, and what ends its answer."""

from __future__ import annotations

import pytest
from specclient_local.decoding.sequence_builder import SequenceBuilder
from specclient_local.engine.answer import AnswerText, RequestClock
from specclient_local.model.config import read_config
from specclient_local.model.tokenizer import Tokenizer
from specclient_local.request.params import SamplingParams
from tiny_models import load, sequence, write_checkpoint

from specclient.errors import BadRequestError, ContextOverflowError


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_checkpoint(tmp_path_factory.mktemp("target"), seed=1, eos_token_id=[1, 7])


@pytest.fixture(scope="module")
def requests(folder):
    return SequenceBuilder(Tokenizer(folder), read_config(folder), 40, "plain", ("plain",))


def processor_of(requests, **params):
    return requests.sequence(0, "def f", SamplingParams(max_tokens=8, **params)).logits_processor


def test_a_request_without_logits_parameters_has_no_logits_processor(requests):
    assert (
        processor_of(requests, temperature=0.7, top_p=0.9, min_p=0.1, typical_p=0.5, stop="x", seed=3) is None
    )


@pytest.mark.parametrize(
    ("requested", "parts"),
    [
        ({"repetition_penalty": 1.1}, (True, False, False)),
        ({"presence_penalty": -0.1}, (True, False, False)),
        ({"frequency_penalty": 0.1}, (True, False, False)),
        ({"logit_bias": {3: 0.5}}, (True, False, False)),
        ({"min_tokens": 1}, (False, True, False)),
        ({"bad_words": ["x"]}, (False, True, False)),
        ({"regex": "a"}, (False, False, True)),
        ({"regex": "a", "min_tokens": 1, "logit_bias": {3: 0.5}}, (True, True, True)),
    ],
    ids=str,
)
def test_a_request_gets_only_the_logits_processors_it_needs(requests, requested, parts):
    got = processor_of(requests, **requested)
    assert tuple(part is not None for part in (got.penalties, got.masks, got.grammar)) == parts


@pytest.mark.parametrize(
    ("requested", "message"),
    [
        ({"logit_bias": {300: 1.0}}, "logit_bias is 300; allowed is token ids from 0 to 299"),
        ({"stop_token_ids": [5, 999]}, "stop_token_ids is 999; allowed is token ids from 0 to 299"),
        ({"regex": "a{"}, "regex cannot be used: .*"),
        ({"json_schema": {"type": "nothing"}}, "json_schema cannot be used: Invalid type: nothing"),
    ],
)
def test_parameters_that_do_not_fit_the_model_are_rejected_before_queueing(folder, requested, message):
    events = []
    with load(folder) as engine:
        with pytest.raises(BadRequestError, match=f"(?s){message}") as refused:
            engine.add("def f", events.append, max_tokens=8, **requested)
        assert refused.value.param == next(iter(requested))
        assert not engine.step()
    assert not events


def test_min_tokens_beyond_the_context_is_rejected(requests):
    with pytest.raises(ContextOverflowError, match="at least 39 new ones exceed the context of 40"):
        requests.sequence(0, "def f", SamplingParams(min_tokens=39, max_tokens=None))


def test_bad_words_are_masked_with_and_without_a_leading_space_but_end_tokens_are_not(requests):
    masks = processor_of(requests, bad_words=["turn", " if", "<|eos|>"]).masks
    encode = requests.tokenizer.encode
    sequences = {
        (*before, last) for known in masks._after.values() for before in known for last in known[before]
    }
    sequences |= {(token,) for token in masks._never}
    assert sequences == {
        (*encode(text, begins=False),) for text in ("turn", " turn", "if", " if", " <|eos|>")
    }


def test_a_stop_id_ends_the_answer(folder):
    with load(folder) as engine:
        free = engine.generate("def f(n):", max_tokens=12)
        at = next(i for i, token in enumerate(free.token_ids) if i > 2 and token not in free.token_ids[:i])
        stopped = engine.generate("def f(n):", max_tokens=12, stop_token_ids=[free.token_ids[at]])
        later = engine.generate(
            "def f(n):", max_tokens=12, stop_token_ids=[free.token_ids[at]], min_tokens=at + 1
        )
    assert stopped.finish_reason == "stop"
    assert stopped.token_ids == free.token_ids[: at + 1]
    assert later.token_ids[:at] == free.token_ids[:at]
    assert later.token_ids[at] != free.token_ids[at]


def push_letters(tokenizer, text, **params):
    """Push a text letter by letter; return the answer's text and finish reason."""
    request = sequence(tokenizer.encode("def f"), max_tokens=30, eos=[1], **params)
    answer = AnswerText.begin(request, tokenizer, RequestClock(0.0))
    out = ""
    for token in [t for letter in text for t in tokenizer.encode(letter, begins=False)]:
        piece = answer.push([token], [False])
        out += piece.text
        if piece.finish_reason is not None:
            assert piece.generation.text == out
            break
    return out, piece.finish_reason


@pytest.mark.parametrize(
    ("min_tokens", "text"), [(0, "x"), (3, "x"), (4, "xaby"), (6, "xaby"), (7, "xabyabzq"), (8, "xabyabzq")]
)
def test_a_stop_string_completed_before_min_tokens_is_part_of_the_text(requests, min_tokens, text):
    """The stop string is complete after the third and after the sixth letter."""
    got = push_letters(requests.tokenizer, "xabyabzqab", stop="ab", min_tokens=min_tokens)
    assert got == (text, "stop")


def test_a_stop_string_may_overlap_an_ignored_earlier_one(requests):
    tokenizer = requests.tokenizer
    assert push_letters(tokenizer, "aaab", stop=["aa", "ab"], min_tokens=4) == ("aa", "stop")
    assert push_letters(tokenizer, "ababab", stop=["ab", "aba"], min_tokens=5) == ("abab", "stop")


@pytest.mark.parametrize(
    ("stops", "first"),
    [(["bo", "na", "cx"], "bona"), (["bona", "c", "x"], "bonac"), (["ona", "a", "cx"], "bona")],
)
def test_several_stop_strings_in_one_token_before_min_tokens_are_ignored(requests, stops, first):
    """The token contains two of them, and possibly the beginning of a third."""
    (token,) = (t for t in range(300) if requests.tokenizer.piece(t) == b"bonac")
    request = sequence([5], max_tokens=9, stop=stops, min_tokens=2)
    answer = AnswerText.begin(request, requests.tokenizer, RequestClock(0.0))
    assert answer.push([token], [True]).text == first
    piece = answer.push(requests.tokenizer.encode("x", begins=False), [False])
    assert (piece.text, piece.finish_reason) == ("", "stop")


@pytest.mark.parametrize(
    ("prompt", "params"),
    [
        ("a" * 100_000, {}),
        ("a" * 100_000, {"overflow": "slide"}),
        ("def f", {"prediction": "a" * 100_000}),
    ],
    ids=["prompt", "sliding prompt", "prediction"],
)
def test_a_text_that_certainly_exceeds_the_context_is_not_encoded(folder, monkeypatch, prompt, params):
    requests = SequenceBuilder(Tokenizer(folder), read_config(folder), 40, "plain", ("plain", "prediction"))
    encode = requests.tokenizer.encode

    def short(text, *, begins=True):
        assert len(text) < 1000, "a long text was encoded"
        return encode(text, begins=begins)

    monkeypatch.setattr(requests.tokenizer, "encode", short)
    with pytest.raises(ContextOverflowError, match=r"has 100000 bytes and so at least .* allowed are"):
        requests.sequence(0, prompt, SamplingParams(max_tokens=8, **params))


def test_a_sliding_prompt_may_be_longer_than_the_context(requests):
    text = "a " * requests.context
    assert requests.sequence(0, text, SamplingParams(max_tokens=8, overflow="slide")).tokens
    with pytest.raises(ContextOverflowError):
        requests.sequence(0, text, SamplingParams(max_tokens=8))
