"""What the backend tells beside the text: token ids and log-probabilities in OpenAI's and vLLM's forms."""

from __future__ import annotations

import json
import math

import anyio
import pytest
from specclient_local.api.backend import create

from specclient.errors import BadRequestError
from specclient.types import inference_methods
from specclient.types.backend import EngineTelemetry
from specclient.types.request import Request

pytestmark = pytest.mark.anyio

PROMPT = "def f(\u00e9\u4e2d"


@pytest.fixture(scope="module")
def backend(checkpoint):
    folder = str(checkpoint(eos_token_id=None))
    made = create({"models": {"pair": {"path": folder, "draft": folder}}, "threads": 1})
    yield made
    anyio.run(made.aclose)


def tokenizer(backend):
    return backend.engine_for("pair").tokenizer


async def complete(backend, **params):
    params = {"prompt": PROMPT, "temperature": 0, "max_tokens": 6, **params}
    answer, _ = await backend.complete(Request(inference_methods.COMPLETION, "local/pair", params), "pair")
    return json.loads(answer.model_dump_json(exclude_unset=True))


async def chat(backend, **params):
    params = {"messages": [{"role": "user", "content": "hi"}], "temperature": 0, "max_tokens": 9, **params}
    answer, _ = await backend.complete(Request(inference_methods.CHAT, "local/pair", params), "pair")
    return answer.choices[0]


async def chunks(backend, method, **params):
    request = Request(method, "local/pair", {"temperature": 0, "max_tokens": 6, **params})
    found = [item async for item in backend.stream(request, "pair")]
    return [item for item in found if not isinstance(item, EngineTelemetry)]


async def test_token_ids_are_told_where_asked_for(backend):
    choice = (await complete(backend, return_token_ids=True))["choices"][0]
    assert choice["prompt_token_ids"] == tokenizer(backend).encode(PROMPT)
    assert len(choice["token_ids"]) == 6
    assert tokenizer(backend).decode(choice["token_ids"]) == choice["text"]
    plain = (await complete(backend))["choices"][0]
    assert not {"token_ids", "prompt_token_ids", "prompt_logprobs"} & set(plain)
    assert plain["logprobs"] is None
    again = (await complete(backend, prompt=choice["prompt_token_ids"]))["choices"][0]
    assert again["text"] == choice["text"]


@pytest.mark.parametrize("top", [0, 1, 20])
async def test_prompt_logprobs_as_vllm_has_them(backend, top):
    answer = await complete(backend, prompt_logprobs=top, max_tokens=1, return_token_ids=True)
    choice = answer["choices"][0]
    first, *others = choice["prompt_logprobs"]
    assert first is None
    assert len(others) == len(choice["prompt_token_ids"]) - 1
    for token, told in zip(choice["prompt_token_ids"][1:], others, strict=True):
        assert next(iter(told)) == str(token)
        assert top <= len(told) <= top + 1
        ranks = sorted(entry["rank"] for entry in told.values())
        assert ranks[:top] == list(range(1, top + 1))
        assert told[str(token)]["rank"] == ranks[-1] or len(told) == top
        by_rank = sorted(told.values(), key=lambda entry: entry["rank"])
        assert [e["logprob"] for e in by_rank] == sorted((e["logprob"] for e in by_rank), reverse=True)
        assert set(told[str(token)]) == {"logprob", "rank", "decoded_token"}
    assert len(choice["token_ids"]) == 1


async def test_a_greedy_continuation_is_of_rank_one_all_along(backend):
    """What a remote verification reads: rank 1 is accepted, and the new token comes with it."""
    free = (await complete(backend, return_token_ids=True))["choices"][0]
    prompt, new = free["prompt_token_ids"], free["token_ids"]
    told = await complete(
        backend, prompt=prompt + new[:4], max_tokens=1, prompt_logprobs=1, return_token_ids=True
    )
    choice = told["choices"][0]
    assert [entry[str(t)]["rank"] for t, entry in zip(new, choice["prompt_logprobs"][-4:], strict=False)] == [
        1
    ] * 4
    assert choice["token_ids"] == new[4:5]
    wrong = [*new[:2], (new[2] + 1) % 300, new[3]]
    told = await complete(backend, prompt=prompt + wrong, max_tokens=1, prompt_logprobs=1)
    entry = told["choices"][0]["prompt_logprobs"][len(prompt) + 2]
    assert entry[str(wrong[2])]["rank"] > 1
    assert entry[str(new[2])]["rank"] == 1


async def test_no_new_tokens_at_all(backend):
    for params in ({"echo": True}, {"prompt_logprobs": 0}, {"echo": True, "logprobs": 2}):
        answer = await complete(backend, max_tokens=0, **params)
        choice = answer["choices"][0]
        assert choice["text"] == (PROMPT if "echo" in params else "")
        assert choice["finish_reason"] == "length"
        assert answer["usage"]["completion_tokens"] == 0
        assert answer["usage"]["prompt_tokens"] == len(tokenizer(backend).encode(PROMPT))
    with pytest.raises(BadRequestError, match="max_tokens is 0"):
        await complete(backend, max_tokens=0)


async def test_an_echo_begins_with_the_prompt(backend):
    new = (await complete(backend))["choices"][0]["text"]
    assert (await complete(backend, echo=True))["choices"][0]["text"] == PROMPT + new
    ids = tokenizer(backend).encode(PROMPT)
    assert (await complete(backend, echo=True, prompt=ids))["choices"][0]["text"] == PROMPT + new


@pytest.mark.parametrize("echo", [False, True])
async def test_legacy_logprobs(backend, echo):
    answer = await complete(backend, logprobs=2, echo=echo, return_token_ids=True)
    choice = answer["choices"][0]
    told, new = choice["logprobs"], choice["token_ids"]
    ids = [*choice["prompt_token_ids"], *new] if echo else new
    assert told["token_ids"] == ids
    assert {len(told[name]) for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset")} == {
        len(ids)
    }
    assert [told["token_logprobs"][0] is None, told["top_logprobs"][0] is None] == [echo, echo]
    for token, logprob, top in list(
        zip(told["tokens"], told["token_logprobs"], told["top_logprobs"], strict=True)
    )[echo:]:
        assert len(top) + (token == "\ufffd") >= 2
        assert token in top
        assert -math.inf < logprob <= max(top.values()) <= 0
    for i, (token, at) in enumerate(zip(told["tokens"], told["text_offset"], strict=True)):
        if "\ufffd" not in token:
            assert choice["text"][at : at + len(token)] == token, i
    assert told["text_offset"] == sorted(told["text_offset"])


async def test_logprobs_of_a_chat(backend):
    plain = await chat(backend, logprobs=True, top_logprobs=3, specclient={"method": "plain"})
    drafted = await chat(backend, logprobs=True, top_logprobs=3, specclient={"draft_length": 4})
    assert len(plain.logprobs.content) == len(drafted.logprobs.content) == 9
    for one, other in zip(plain.logprobs.content, drafted.logprobs.content, strict=True):
        assert one.token == other.token
        assert one.logprob == pytest.approx(other.logprob, abs=1e-5)
        assert len(one.top_logprobs) == 3
        assert one.top_logprobs[0].logprob == one.logprob  # greedy
        assert one.top_logprobs[0].bytes == one.bytes
    data = b"".join(bytes(entry.bytes) for entry in plain.logprobs.content)
    assert data.decode(errors="replace") == plain.message.content
    assert (await chat(backend, logprobs=True)).logprobs.content[0].top_logprobs == []
    for off in ({}, {"logprobs": False}, {"logprobs": False, "top_logprobs": 0}):
        assert (await chat(backend, **off)).logprobs is None


async def test_a_streamed_chat_tells_the_same(backend):
    params = {"messages": [{"role": "user", "content": "hi"}], "logprobs": True, "top_logprobs": 2}
    whole = await chat(backend, max_tokens=6, logprobs=True, top_logprobs=2)
    parts = await chunks(backend, inference_methods.CHAT, **params)
    told = [e for c in parts if c.choices[0].logprobs for e in c.choices[0].logprobs.content]
    assert told == whole.logprobs.content
    assert "".join(c.choices[0].delta.content or "" for c in parts) == whole.message.content


@pytest.mark.parametrize("echo", [False, True])
async def test_a_streamed_completion_tells_the_same(backend, echo):
    params = {"prompt": PROMPT, "logprobs": 1, "echo": echo, "return_token_ids": True, "prompt_logprobs": 1}
    whole = (await complete(backend, **params))["choices"][0]
    parts = [
        json.loads(c.model_dump_json(exclude_unset=True))["choices"][0]
        for c in await chunks(backend, inference_methods.COMPLETION, **params)
    ]
    assert "".join(part["text"] for part in parts) == whole["text"]
    assert parts[0]["prompt_logprobs"] == whole["prompt_logprobs"]
    assert parts[0]["prompt_token_ids"] == whole["prompt_token_ids"]
    assert [t for part in parts for t in part.get("token_ids", [])] == whole["token_ids"]
    for name, values in whole["logprobs"].items():
        assert [v for part in parts if part.get("logprobs") for v in part["logprobs"][name]] == values, name


async def test_an_answer_with_nulls_is_dumped_and_read_without_complaint(backend):
    from specclient.types.completion import Completion

    params = {"prompt": PROMPT, "temperature": 0, "max_tokens": 1, "echo": True, "logprobs": 1}
    answer, _ = await backend.complete(Request(inference_methods.COMPLETION, "local/pair", params), "pair")
    again = Completion.received(answer.model_dump_json().encode())
    assert again.choices[0].logprobs.token_logprobs == answer.choices[0].logprobs.token_logprobs


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("logprobs", True),
        ("logprobs", 21),
        ("logprobs", -1),
        ("prompt_logprobs", 1.5),
        ("prompt_logprobs", 21),
        ("echo", "yes"),
        ("echo", 1),
        ("return_token_ids", 1),
        ("max_tokens", -1),
    ],
)
async def test_bad_values_are_named(backend, name, value):
    with pytest.raises(BadRequestError) as caught:
        await complete(backend, **{name: value})
    assert caught.value.param == name
    assert repr(value) in str(caught.value)
