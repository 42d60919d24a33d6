"""Prepared requests with many choices: bounded, begun one after another, and cancelled with the caller."""

from __future__ import annotations

import resource

import anyio
import pytest
from specclient_local.api.backend import create

from specclient.errors import BadRequestError, ContextOverflowError
from specclient.types import inference_methods
from specclient.types.request import Request
from specclient.types.request_limits import RequestLimits

pytestmark = pytest.mark.anyio

UNBOUNDED = RequestLimits(choices=10**9)


def completion(**params):
    return Request(inference_methods.COMPLETION, "local/m", {"prompt": "def f", "max_tokens": 1, **params})


def chat(**params):
    messages = [{"role": "user", "content": "hi"}]
    return Request(inference_methods.CHAT, "local/m", {"messages": messages, "max_tokens": 1, **params})


@pytest.fixture
def make(checkpoint):
    made = []

    def backend(limits=None, **options):
        table = {"path": str(checkpoint(eos_token_id=None)), **options}
        made.append(create({"models": {"m": table}, "threads": 1, "requests": limits}))
        return made[-1]

    yield backend
    for each in made:
        anyio.run(each.aclose)


async def idle(engine):
    with anyio.fail_after(30):
        while engine.unfinished:
            await anyio.sleep(0.01)


@pytest.mark.parametrize(
    ("prompt", "n", "message"),
    [
        (
            ["x"] * 10_000,
            128,
            "prompt has 10000 prompts and n is 128, which makes 1280000 choices; allowed are",
        ),
        (["x"] * 1025, 1, "prompt has 1025 prompts; allowed are at most 1024 choices"),
        ([[5]] * 513, 2, "which makes 1026 choices"),
    ],
)
async def test_more_choices_than_allowed_are_refused(make, prompt, n, message):
    backend = make()
    for call in (backend.complete, lambda *args: anext(backend.stream(*args))):
        with pytest.raises(BadRequestError, match=message) as refused:
            await call(completion(prompt=prompt, n=n), "m")
        assert (refused.value.param, refused.value.code) == ("prompt", "too_many_choices")
        assert "raise choices in [server.requests]" in str(refused.value)
    assert not backend._engines or not backend.engine_for("m").unfinished


async def test_as_many_choices_as_allowed_are_answered_in_order(make):
    backend = make(RequestLimits(choices=24))
    prompts = ["a", "b", "c", "d", "e", "f", "g", "h"]
    several, telemetry = await backend.complete(
        completion(prompt=prompts, n=3, seed=5, max_tokens=4, temperature=1.0), "m"
    )
    assert [choice.index for choice in several.choices] == list(range(24))
    for i, prompt in enumerate(prompts):
        single, _ = await backend.complete(
            completion(prompt=prompt, seed=7, max_tokens=4, temperature=1.0), "m"
        )
        assert several.choices[3 * i + 2].text == single.choices[0].text
    assert several.usage.completion_tokens == 24 * 4
    one, _ = await backend.complete(completion(prompt=prompts, max_tokens=1), "m")
    assert several.usage.prompt_tokens == one.usage.prompt_tokens, "each prompt counts once"
    assert telemetry.speculation.steps == 24 * 4
    with pytest.raises(BadRequestError, match="allowed are at most 24 choices"):
        await backend.complete(chat(n=25), "m")


async def test_choices_with_a_grammar_begin_in_order(make):
    """OpenAI's own client needs the first chunk of a choice after those of the choices before it."""
    backend = make(slots=8)
    for _ in range(5):
        chunks = backend.stream(chat(n=8, specclient={"regex": "[a-z]+"}), "m")
        began = [chunk.choices[0].index async for chunk in chunks if getattr(chunk, "choices", None)]
        assert list(dict.fromkeys(began)) == list(range(8))


async def test_choices_enter_the_engine_as_others_end(make):
    """The engine holds as many choices as its slots and a few; memory does not grow with the request."""
    backend = make(UNBOUNDED, slots=2)
    engine = backend.engine_for("m")
    stream = backend.stream(completion(prompt=["x"] * 10_000, n=128), "m")
    seen = set()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    async for chunk in stream:
        seen.add(chunk.choices[0].index)
        assert engine.unfinished <= 2 + 4
        if len(seen) >= 400:
            break
    await stream.aclose()
    await idle(engine)
    assert max(seen) < 400 + 2 * (2 + 4), "begun in order"
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    assert grown < 64, f"{grown:.0f} MiB for 1,280,000 choices"


async def test_cancelling_ends_what_runs_and_what_has_not_begun(make):
    backend = make(UNBOUNDED, slots=2)
    engine = backend.engine_for("m")
    with anyio.move_on_after(0.5):
        await backend.complete(completion(prompt=["x"] * 10_000, n=128), "m")
    await idle(engine)
    busy = engine.busy_s
    await anyio.sleep(0.2)
    assert engine.busy_s == busy


async def test_a_prompt_that_is_too_long_is_an_error_before_the_first_chunk(make):
    """Although it enters the engine long after the first."""
    backend = make(UNBOUNDED, slots=1)
    with pytest.raises(ContextOverflowError):
        await anext(backend.stream(completion(prompt=[*["x"] * 60, [7] * 200], n=2), "m"))
