"""The local backend: OpenAI responses and chunks, loading once, and errors for unsupported requests."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import anyio
import pytest
from specclient_local.api.backend import create
from specclient_local.engine import engine as engine_module

from specclient.errors import (
    BadRequestError,
    ContextOverflowError,
    NotFoundError,
    UnsupportedParameterError,
)
from specclient.types import inference_methods
from specclient.types.backend import BackendModel, EngineTelemetry
from specclient.types.request import Request

pytestmark = pytest.mark.anyio

MESSAGES = [{"role": "user", "content": "hi"}]


@pytest.fixture(scope="module")
def folder(checkpoint):
    return str(checkpoint(eos_token_id=None))


def make(folder, **models):
    rows = {name: {"path": folder, **row} for name, row in models.items()}
    return create({"models": rows, "threads": 1})


@pytest.fixture(scope="module")
def backend(folder):
    """Create one backend for all tests; each test runs in a separate event loop."""
    made = make(folder, pair={"draft": folder}, alone={})
    yield made
    anyio.run(made.aclose)
    anyio.run(made.aclose)


def chat(model="pair", **params):
    return Request(
        inference_methods.CHAT,
        f"local/{model}",
        {"messages": MESSAGES, "max_tokens": 12, "temperature": 0, **params},
    )


def completion(model="pair", **params):
    return Request(
        inference_methods.COMPLETION, f"local/{model}", {"prompt": "def f", "temperature": 0, **params}
    )


async def collect(backend, request, model="pair"):
    return [item async for item in backend.stream(request, model)]


def test_importing_and_listing_needs_no_torch(folder):
    code = (
        "import sys; from specclient_local.api.backend import create; import specclient_local;"
        f"rows = create({{'models': {{'m': {{'path': {folder!r}, 'draft': 'owner/name'}}}}}}).models();"
        "assert [r.id for r in rows] == ['demo', 'demo-target', 'm'], rows;"
        "loaded = {'torch', 'transformers', 'tokenizers'} & set(sys.modules); assert not loaded, loaded"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_models_lists_target_draft_method_and_options(backend, folder):
    rows = {row.id: row for row in backend.models()}
    assert rows["pair"] == BackendModel("pair", folder, folder, "draft", 128, {"threads": 1})
    assert rows["alone"] == BackendModel("alone", folder, None, "plain", 128, {"threads": 1})
    assert rows["demo"].method == "draft"
    assert (rows["demo-target"].method, rows["demo-target"].draft) == ("plain", None)
    assert rows["demo-target"].target == rows["demo"].target


async def test_a_chat_completion_has_openais_fields(backend):
    answer, measured = await backend.complete(chat(seed=1), "pair")
    assert answer.object == "chat.completion"
    assert answer.id.startswith("chatcmpl-")
    assert answer.model == "pair"
    assert answer.created > 1_700_000_000
    choice = answer.choices[0]
    assert (choice.message.role, choice.finish_reason, choice.index) == ("assistant", "length", 0)
    assert choice.message.content
    usage = answer.usage
    assert usage.completion_tokens == 12
    assert usage.prompt_tokens > 5
    assert usage.total_tokens == usage.prompt_tokens + 12
    assert measured.speculation.method == "draft"
    assert measured.engine_s > 0


async def test_text_parts_are_joined(backend):
    parts = [{"role": "user", "content": [{"type": "text", "text": "h"}, {"type": "text", "text": "i"}]}]
    whole, _ = await backend.complete(chat(), "pair")
    joined, _ = await backend.complete(chat(messages=parts), "pair")
    assert joined.choices[0].message.content == whole.choices[0].message.content
    assert joined.usage.prompt_tokens == whole.usage.prompt_tokens


async def test_a_streamed_chat_equals_the_whole_one(backend):
    whole, _ = await backend.complete(chat(), "pair")
    *chunks, usage, measured = await collect(backend, chat(stream_options={"include_usage": True}))
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(c.choices[0].delta.content or "" for c in chunks) == whole.choices[0].message.content
    assert [c.choices[0].finish_reason for c in chunks] == [None] * (len(chunks) - 1) + ["length"]
    assert {c.id for c in chunks} == {usage.id}
    assert {c.object for c in chunks} == {"chat.completion.chunk"}
    assert usage.choices == []
    assert usage.usage.total_tokens == whole.usage.total_tokens
    assert isinstance(measured, EngineTelemetry)
    assert "specclient" not in chunks[1].choices[0].to_dict()


async def test_without_include_usage_there_is_no_usage_chunk(backend):
    *chunks, measured = await collect(backend, completion())
    assert all(c.choices for c in chunks)
    assert isinstance(measured, EngineTelemetry)


async def test_a_streamed_completion_equals_the_whole_one(backend):
    whole, _ = await backend.complete(completion(), "pair")
    assert whole.id.startswith("cmpl-")
    assert whole.usage.completion_tokens == 16
    *chunks, _ = await collect(backend, completion())
    assert "".join(c.choices[0].text for c in chunks) == whole.choices[0].text
    assert chunks[-1].choices[0].finish_reason == whole.choices[0].finish_reason == "length"


async def test_prompts_are_accepted_as_text_ids_and_lists(backend):
    text, _ = await backend.complete(completion(), "pair")
    ids = backend.engine_for("pair").tokenizer.encode("def f")
    for prompt in (["def f"], ids, [ids]):
        same, _ = await backend.complete(completion(prompt=prompt), "pair")
        assert same.choices[0].text == text.choices[0].text


async def test_chunks_have_drafted_segments_if_origins_are_requested(backend):
    extension = {"origins": True, "draft_length": 4}
    *chunks, measured = await collect(backend, chat(specclient=extension))
    segments = [s for c in chunks for s in c.choices[0].to_dict().get("specclient", {}).get("segments", [])]
    assert "".join(text for text, _ in segments) == "".join(c.choices[0].delta.content or "" for c in chunks)
    assert {drafted for _, drafted in segments} == {True, False}
    assert measured.speculation.drafted > 0


async def test_the_specclient_extension_selects_method_and_draft_length(backend):
    for extension, method, drafted in (
        ({"method": "plain"}, "plain", False),
        ({"draft_length": 2}, "draft", True),
        ({"draft_length": 0}, "draft", False),
    ):
        _, measured = await backend.complete(chat(specclient=extension), "pair")
        assert (measured.speculation.method, measured.speculation.drafted > 0) == (method, drafted)


async def test_sampling_parameters_reach_the_engine(backend):
    async def text(**params):
        answer, _ = await backend.complete(completion(**params), "pair")
        return answer.choices[0].text

    greedy = await text()
    assert await text(temperature=1.0, top_k=1) == greedy
    assert await text(temperature=1.0, top_p=1e-9) == greedy
    assert await text(temperature=1.5, seed=1) == await text(temperature=1.5, seed=1) != greedy
    assert await text(temperature=None, seed=1) == await text(temperature=1.0, seed=1)
    assert await text(max_tokens=4) == (await text(max_tokens=4, max_completion_tokens=None))
    stopped, _ = await backend.complete(completion(stop=greedy[5:7]), "pair")
    assert stopped.choices[0].text == greedy[: greedy.index(greedy[5:7])]
    assert stopped.choices[0].finish_reason == "stop"


async def test_parameters_without_effect_are_accepted(backend):
    params = {
        "user": "me",
        "metadata": {"a": "b"},
        "store": True,
        "n": 1,
        "logprobs": False,
        "tools": [],
        "logit_bias": {},
        "presence_penalty": 0,
        "frequency_penalty": 0.0,
        "response_format": {"type": "text"},
        "tool_choice": None,
    }
    plain, _ = await backend.complete(chat(), "pair")
    same, _ = await backend.complete(chat(**params), "pair")
    assert same.choices[0].message.content == plain.choices[0].message.content


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("best_of", 2),
        ("echo", True),
        ("prompt_logprobs", 1),
        ("return_token_ids", True),
        ("response_format", {"type": "structural_tag"}),
        ("functions", [{"name": "f"}]),
        ("ignore_eos", True),
        ("reasoning_effort", "low"),
        ("modalities", ["audio"]),
        ("a_new_one", 1),
    ],
)
async def test_unsupported_parameters_that_would_change_the_answer_are_rejected(backend, name, value):
    with pytest.raises(UnsupportedParameterError) as caught:
        await backend.complete(chat(**{name: value}), "pair")
    assert caught.value.param == name
    assert str(caught.value).startswith(f"{name}={value!r} is not supported by local/pair")
    with pytest.raises(UnsupportedParameterError):
        await collect(backend, chat(**{name: value}))


@pytest.mark.parametrize(
    ("params", "param"),
    [
        ({"temperature": -1}, "temperature"),
        ({"top_p": 2}, "top_p"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"n": 0}, "n"),
        ({"n": 129}, "n"),
        ({"presence_penalty": 3}, "presence_penalty"),
        ({"logit_bias": {"x": 1}}, "logit_bias"),
        ({"logit_bias": {"5": 200}}, "logit_bias"),
        ({"logit_bias": {"5000": 1}}, "logit_bias"),
        ({"logit_bias": 4}, "logit_bias"),
        ({"min_p": 2}, "min_p"),
        ({"top_k": -2}, "top_k"),
        ({"bad_words": "a"}, "bad_words"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        ({"guided_json": "{"}, "guided_json"),
        ({"guided_choice": []}, "guided_choice"),
        ({"guided_grammar": "a ::= ::="}, "guided_grammar"),
        ({"guided_regex": "a", "guided_choice": ["b"]}, "guided_choice"),
        ({"structured_outputs": {"colour": 1}}, "structured_outputs"),
        ({"structured_outputs": {"regex": "a", "choice": ["b"]}}, "structured_outputs"),
        ({"structured_outputs": {"regex": 3}}, "structured_outputs.regex"),
        ({"specclient": {"regex": "a"}, "response_format": {"type": "json_object"}}, "regex"),
        ({"specclient": {"draft_tree": [9]}}, "draft_tree"),
        ({"specclient": {"verification": "both"}}, "verification"),
        ({"logprobs": 1}, "logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"stop": [""]}, "stop"),
        ({"messages": []}, "messages"),
        ({"messages": None}, "messages"),
        ({"messages": ["hi"]}, "messages[0]"),
        ({"messages": [{"role": "user", "content": None}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0].content"),
        ({"specclient": {"colour": 1}}, "specclient"),
        ({"specclient": 3}, "specclient"),
        ({"specclient": {"draft_length": 99}}, "draft_length"),
    ],
)
async def test_invalid_values_raise_with_the_parameters_name(backend, params, param):
    with pytest.raises(BadRequestError) as caught:
        await backend.complete(chat(**params), "pair")
    assert caught.value.param == param


@pytest.mark.parametrize("prompt", [None, 3, [1, "x"], [True]])
async def test_invalid_prompts_raise_with_the_parameters_name(backend, prompt):
    with pytest.raises(BadRequestError) as caught:
        await backend.complete(completion(prompt=prompt), "pair")
    assert caught.value.param == "prompt"


async def test_an_unknown_model_raises_with_the_known_ones(backend):
    with pytest.raises(NotFoundError, match="local/nope is unknown; known are local/demo, "):
        await backend.complete(chat("nope"), "nope")
    with pytest.raises(NotFoundError, match="did you mean local/demo"):
        await backend.complete(chat("dmeo"), "dmeo")


async def test_a_folder_can_be_used_as_a_model_name(backend, folder):
    answer, measured = await backend.complete(completion(folder), folder)
    assert answer.model == folder
    assert measured.speculation.method == "plain"


async def test_a_gguf_file_can_be_used_as_a_model_name(backend, folder, tmp_path):
    pytest.importorskip("gguf", reason="the extra gguf is not installed")
    from gguf_files import write_gguf

    copied = Path(shutil.copytree(folder, tmp_path / "copied"))
    file = str(write_gguf(copied, tmp_path / "model.gguf"))
    answer, measured = await backend.complete(completion(file), file)
    expected, _ = await backend.complete(completion(folder), folder)
    assert answer.model == file
    assert answer.choices[0].text == expected.choices[0].text
    assert measured.speculation.method == "plain"
    with pytest.raises(NotFoundError, match="is unknown"):
        await backend.complete(completion("none.gguf"), "none.gguf")


async def test_a_failing_prompt_stops_the_other_prompts_of_its_call(backend):
    with pytest.raises(ContextOverflowError):
        await collect(backend, completion(prompt=["a", [7] * 200, "b"], max_tokens=100))
    engine = backend.engine_for("pair")
    with anyio.fail_after(30):
        while engine.unfinished:
            await anyio.sleep(0.01)


async def test_a_prompt_that_is_too_long_raises_before_the_first_chunk(backend):
    with pytest.raises(ContextOverflowError, match="exceed the context of 128"):
        await collect(backend, completion(prompt=[7] * 200))


async def test_concurrent_first_calls_load_once(folder, monkeypatch):
    backend = make(folder, pair={"draft": folder})
    loads = []
    original = engine_module.Engine.load

    def counting(*args, **kwargs):
        loads.append(args)
        return original(*args, **kwargs)

    monkeypatch.setattr(engine_module.Engine, "load", counting)
    async with anyio.create_task_group() as group:
        for _ in range(4):
            group.start_soon(backend.complete, completion(), "pair")
    assert loads == [(folder,)]
    await backend.aclose()


async def test_models_with_the_same_checkpoints_share_an_engine(folder):
    backend = make(folder, a={"draft": folder}, b={"draft": folder, "method": "plain"})
    assert backend.engine_for("a") is backend.engine_for("b")
    drafted, one = await backend.complete(completion("a"), "a")
    plain, other = await backend.complete(completion("b"), "b")
    assert drafted.choices[0].text == plain.choices[0].text
    assert (one.speculation.method, other.speculation.method) == ("draft", "plain")
    target = "/".join(Path(folder).parts[-2:])
    assert (one.pair, other.pair) == (f"{target}+{target}", target)
    await backend.aclose()


async def test_a_models_draft_length_is_the_default_of_its_requests(folder):
    row = {"draft": folder, "method": "draft"}
    backend = make(folder, two={**row, "draft_length": 2}, wide={**row, "draft_tree": [3]})

    async def deepest(model, *, sampling=None, **extension):
        requested = completion(model, max_tokens=13, specclient=extension, **(sampling or {}))
        _, measured = await backend.complete(requested, model)
        return len(measured.speculation.per_position or ()), measured.speculation.drafted

    assert (await deepest("two"))[0] == 2
    assert (await deepest("two", method="draft"))[0] == 2
    assert (await deepest("two", draft_length=3))[0] == 3, "a request's draft_length takes precedence"
    assert (await deepest("two", method="plain"))[1] == 0
    # A seeded request's draft length ignores measured costs, which could otherwise disable drafting.
    depth, drafted = await deepest("wide", sampling={"temperature": 1.0, "seed": 7})
    assert depth == 1
    assert drafted % 3 == 0
    await backend.aclose()


@pytest.mark.parametrize("choices", [1, 6])
async def test_closing_a_stream_early_cancels_its_requests(backend, choices):
    stream = backend.stream(chat(max_tokens=None, n=choices), "pair")
    async for _ in stream:
        break
    await stream.aclose()
    engine = backend.engine_for("pair")
    with anyio.fail_after(30):
        while engine.unfinished:
            await anyio.sleep(0.01)
