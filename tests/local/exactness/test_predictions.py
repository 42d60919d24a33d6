"""Predicted outputs in the engine and its backend: unchanged answers, fewer passes, and usage counts."""

from __future__ import annotations

import random

import anyio
import pytest
from specclient_local.api.backend import BUNDLED, create
from specclient_local.engine.engine import Engine
from specclient_local.training.corpus import split_modules
from tiny_models import load

from specclient.errors import BadRequestError
from specclient.types import inference_methods
from specclient.types.backend import EngineTelemetry
from specclient.types.request import Request

PROMPTS = ["def f(x):", "import os\n", "x", "", "\u00e9\u4e2d\U0001f600 text"]


def edited(ids, rate, rng, vocab=300):
    """Return ids with some of them replaced, inserted and deleted at random."""
    out = []
    for token in ids:
        kind = rng.random() / rate
        if kind >= 1.0:
            out.append(token)
        elif kind < 0.7:
            out += [rng.randrange(vocab) for _ in range(rng.randrange(1, 4))]
            out += [token] if kind < 0.35 else []
    return out


def decoys(ids, rng, vocab=300):
    """Return pairs of the answer's tokens with wrong continuations: matches that are always rejected."""
    return [t for i in range(len(ids) - 1) for t in (ids[i], ids[i + 1], rng.randrange(vocab))]


def predictions(ids, rng, vocab=300):
    return {
        "perfect": ids,
        "first half": ids[: len(ids) // 2],
        "second half": ids[len(ids) // 2 :],
        "longer": [*ids, *ids[:5]],
        "edited a little": edited(ids, 0.1, rng, vocab),
        "edited a lot": edited(ids, 0.5, rng, vocab),
        "shuffled": rng.sample(ids, len(ids)),
        "random": [rng.randrange(vocab) for _ in ids],
        "decoys": decoys(ids, rng, vocab),
        "one token": [ids[0]] * len(ids),
        "nothing": [],
    }


@pytest.fixture(scope="module")
def engine(checkpoint):
    with load(checkpoint(eos_token_id=None, spread=0.2), checkpoint(eos_token_id=None, seed=4)) as engine:
        yield engine


@pytest.mark.parametrize("prompt", PROMPTS)
def test_greedy_answers_with_predictions_equal_plain_decoding(engine, prompt):
    plain = engine.generate(prompt, max_tokens=60, method="plain", logprobs=2)
    for name, prediction in predictions(plain.token_ids, random.Random(0)).items():
        for length in (None, 0, 2, 8) if name == "edited a little" else (None,):
            answer = engine.generate(
                prompt, max_tokens=60, prediction=prediction, draft_length=length, logprobs=2
            )
            assert answer.token_ids == plain.token_ids, f"{name}, draft length {length}"
            assert answer.text == plain.text
            for got, want in zip(answer.logprobs, plain.logprobs, strict=True):
                assert got.logprob == pytest.approx(want.logprob, abs=1e-5)
            figures = answer.speculation
            assert (figures.method, figures.drafted, figures.accepted) == ("prediction", None, None)
            assert figures.acceptance_rate is None
            assert figures.predicted_accepted + figures.predicted_rejected <= len(prediction)
            assert figures.predicted_accepted <= 60
            assert figures.mean_accepted_length == pytest.approx(60 / figures.steps, rel=0.35)
            if name == "perfect" and length is None:
                assert figures.predicted_rejected == 0
                assert figures.steps <= 12  # draft lengths depend on measured costs
                assert figures.predicted_accepted >= 60 - figures.steps
            if name in ("random", "nothing") or length == 0:
                assert figures.steps > 50


def test_a_prediction_can_be_text(engine):
    plain = engine.generate(PROMPTS[0], max_tokens=40)
    answer = engine.generate(PROMPTS[0], max_tokens=40, prediction=plain.text)
    assert answer.token_ids == plain.token_ids
    for text in ("", "\u00e9\u4e2d\U0001f600", "<|bos|>", "\x00\ud7ff", "word " * 3000):
        assert engine.generate(PROMPTS[0], max_tokens=40, prediction=text).token_ids == plain.token_ids


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_seed_gives_the_same_answer_and_figures_again(engine, temperature):
    options = {"max_tokens": 40, "temperature": temperature, "seed": 5}
    plain = engine.generate("x", **options)
    prediction = edited(plain.token_ids, 0.1, random.Random(2))
    one, other = (engine.generate("x", prediction=prediction, **options) for _ in range(2))
    assert one.token_ids == other.token_ids
    assert one.speculation == other.speculation


def test_predicted_tokens_after_a_stop_are_not_counted_as_accepted(engine):
    plain = engine.generate("def f(x):", max_tokens=40)
    stop = plain.text[8:11]
    answer = engine.generate("def f(x):", max_tokens=40, prediction=plain.token_ids, stop=stop)
    assert answer.text == plain.text[: plain.text.index(stop)]
    assert answer.finish_reason == "stop"
    assert answer.speculation.predicted_accepted <= len(answer.token_ids)


def test_the_method_is_chosen_by_the_request(engine, checkpoint):
    for method, expected in ((None, "prediction"), ("plain", "plain"), ("draft", "draft")):
        answer = engine.generate("x", max_tokens=20, prediction=[1, 2], method=method)
        assert answer.speculation.method == expected
        assert (answer.speculation.predicted_accepted is None) == (expected != "prediction")
    with load(checkpoint(eos_token_id=None)) as alone:
        assert alone.generate("x", max_tokens=5, prediction="y").speculation.method == "prediction"
    with pytest.raises(BadRequestError, match=r"method is .prediction.; allowed is one of .*, or to set"):
        engine.generate("x", method="prediction")


@pytest.mark.parametrize("prediction", [[300], [-1], [True], ["x"], 5, [1.0]])
def test_a_prediction_with_invalid_ids_is_rejected(engine, prediction):
    with pytest.raises(BadRequestError, match=r"prediction is .*token ids from 0 to 299") as caught:
        engine.generate("x", max_tokens=5, prediction=prediction)
    assert caught.value.param == "prediction"


def test_requests_with_and_without_predictions_share_a_batch(engine):
    alone = [engine.generate(p, max_tokens=30, method="plain").token_ids for p in PROMPTS]
    events = [[] for _ in PROMPTS]
    for i, prompt in enumerate(PROMPTS):
        engine.add(
            prompt,
            events[i].append,
            max_tokens=30,
            **({} if i == 1 else {"prediction": alone[(i + i % 2) % len(PROMPTS)]}),
        )
    while engine.step():
        pass
    assert [sink[-1].generation.token_ids for sink in events] == alone


# The bundled pair


@pytest.fixture(scope="module")
def pair():
    with Engine.load(BUNDLED / "target", BUNDLED / "draft", threads=1) as engine:
        yield engine


def excerpts(engine, count):
    rng, found = random.Random(3), []
    sources = [module.text for module in split_modules("heldout")]
    while len(found) < count:
        lines = rng.choice(sources).splitlines(keepends=True)
        ids = engine.tokenizer.encode("".join(lines[rng.randrange(len(lines)) :][:40]))
        if len(ids) > 48:
            found.append(ids[:48])
    return found


def check(pair, prompts, new_tokens, each):
    """Compare with plain decoding, with ``each`` kinds of prediction per prompt, in rotation."""
    rng, accepted = random.Random(4), 0
    for i, prompt in enumerate(prompts):
        plain = pair.generate(prompt, max_tokens=new_tokens, method="plain").token_ids
        kinds = list(predictions(plain, rng, 4096).items())
        for name, prediction in [kinds[(i * each + j) % len(kinds)] for j in range(each)]:
            answer = pair.generate(prompt, max_tokens=new_tokens, prediction=prediction)
            assert answer.token_ids == plain, f"prompt {i}, {name}"
            accepted += answer.speculation.predicted_accepted
    assert accepted > len(prompts) * new_tokens * each / 10


def test_predictions_change_no_answer_of_the_bundled_pair(pair):
    check(pair, excerpts(pair, 20), 32, each=2)


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_predictions_change_no_long_answer_of_the_bundled_pair(pair):
    check(pair, excerpts(pair, 200), 160, each=11)


def test_a_right_prediction_needs_less_than_an_eighth_of_the_passes(pair):
    prompt = excerpts(pair, 1)[0]
    plain = pair.generate(prompt, max_tokens=96, method="plain")
    answer = pair.generate(prompt, max_tokens=96, prediction=plain.token_ids)
    assert answer.speculation.steps * 8 < plain.speculation.steps


# Through the backend


@pytest.fixture(scope="module")
def backend(checkpoint):
    folder = str(checkpoint(eos_token_id=None))
    rows = {"pair": {"path": folder, "draft": folder}, "alone": {"path": folder, "method": "plain"}}
    made = create({"models": rows, "threads": 1})
    yield made
    anyio.run(made.aclose)


def request_for(method, **params):
    prompt = {"prompt": "def f"} if method is inference_methods.COMPLETION else {"messages": [MESSAGE]}
    return Request(method, "local/pair", {"temperature": 0, "max_tokens": 24, **prompt, **params})


MESSAGE = {"role": "user", "content": "hi"}
BOTH = pytest.mark.parametrize(
    "method", [inference_methods.CHAT, inference_methods.COMPLETION], ids=lambda m: m.path
)


def text_of(answer):
    choice = answer.choices[0]
    return choice.message.content if hasattr(choice, "message") else choice.text


@pytest.mark.anyio
@BOTH
@pytest.mark.parametrize("model", ["pair", "alone"])
async def test_prediction_counts_are_in_the_usage(backend, method, model):
    plain, _ = await backend.complete(request_for(method), model)
    assert plain.usage.completion_tokens_details is None
    half = len(text_of(plain)) // 2
    parts = [{"type": "text", "text": text_of(plain)[:half]}, {"type": "text", "text": text_of(plain)[half:]}]
    for content in (text_of(plain), parts):
        prediction = {"type": "content", "content": content}
        answer, measured = await backend.complete(request_for(method, prediction=prediction), model)
        assert text_of(answer) == text_of(plain)
        details = answer.usage.completion_tokens_details
        assert details.accepted_prediction_tokens == measured.speculation.predicted_accepted
        assert details.rejected_prediction_tokens == measured.speculation.predicted_rejected
        assert answer.usage.completion_tokens == 24
        assert answer.usage.total_tokens == answer.usage.prompt_tokens + 24
        assert measured.speculation.method == "prediction"
        request = request_for(method, prediction=prediction, stream_options={"include_usage": True})
        *_, usage, telemetry = [item async for item in backend.stream(request, model)]
        assert isinstance(telemetry, EngineTelemetry)
        assert usage.usage == answer.usage
        assert telemetry.speculation == measured.speculation


@pytest.mark.anyio
async def test_a_wrong_prediction_has_no_accepted_tokens(backend):
    prediction = {"type": "content", "content": "never ever like this"}
    answer, _ = await backend.complete(request_for(inference_methods.CHAT, prediction=prediction), "pair")
    details = answer.usage.completion_tokens_details
    assert details.accepted_prediction_tokens == 0
    assert details.rejected_prediction_tokens > 0
    answer, measured = await backend.complete(
        request_for(inference_methods.CHAT, prediction=prediction, specclient={"method": "plain"}), "pair"
    )
    assert (measured.speculation.method, answer.usage.completion_tokens_details) == ("plain", None)


@pytest.mark.anyio
@BOTH
@pytest.mark.parametrize(
    "prediction",
    [
        "text",
        7,
        [],
        {},
        {"type": "content"},
        {"type": "text", "content": "x"},
        {"content": "x"},
        {"type": "content", "content": 3},
        {"type": "content", "content": ["x"]},
        {"type": "content", "content": [{"type": "image_url"}]},
        {"type": "content", "content": [{"type": "text", "text": 3}]},
    ],
    ids=repr,
)
async def test_a_malformed_prediction_is_rejected_with_its_value(backend, method, prediction):
    with pytest.raises(BadRequestError) as caught:
        await backend.complete(request_for(method, prediction=prediction), "pair")
    assert caught.value.param == "prediction"
    assert repr(prediction) in str(caught.value)
