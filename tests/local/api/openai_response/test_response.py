"""Token ids and log-probabilities in responses, in OpenAI's and vLLM's formats."""

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


async def test_token_ids_are_returned_if_requested(backend):
    choice = (await complete(backend, return_token_ids=True))["choices"][0]
    assert choice["prompt_token_ids"] == tokenizer(backend).encode(PROMPT)
    assert len(choice["token_ids"]) == 6
    assert tokenizer(backend).decode(choice["token_ids"]) == choice["text"]
    plain = (await complete(backend))["choices"][0]
    assert not {"token_ids", "prompt_token_ids", "prompt_logprobs"} & set(plain)
    assert plain["logprobs"] is None
    again = (await complete(backend, prompt=choice["prompt_token_ids"]))["choices"][0]
    assert again["text"] == choice["text"]


async def test_a_prompt_that_names_its_special_tokens_gets_no_others():
    backend = create({"threads": 1})
    ids = {}
    for given in (True, False):
        params = {
            "prompt": "<|bos|>def f",
            "max_tokens": 1,
            "return_token_ids": True,
            "add_special_tokens": given,
        }
        request = Request(inference_methods.COMPLETION, "local/demo", params)
        answer, _ = await backend.complete(request, "demo")
        ids[given] = answer.choices[0].prompt_token_ids
    await backend.aclose()
    assert ids[False][0] == 0
    assert 0 not in ids[False][1:]
    assert ids[True] == [0, *ids[False]]


@pytest.mark.parametrize("top", [0, 1, 20])
async def test_prompt_logprobs_have_vllms_format(backend, top):
    answer = await complete(backend, prompt_logprobs=top, max_tokens=1, return_token_ids=True)
    choice = answer["choices"][0]
    first, *others = choice["prompt_logprobs"]
    assert first is None
    assert len(others) == len(choice["prompt_token_ids"]) - 1
    for token, returned in zip(choice["prompt_token_ids"][1:], others, strict=True):
        assert next(iter(returned)) == str(token)
        assert top <= len(returned) <= top + 1
        ranks = sorted(entry["rank"] for entry in returned.values())
        assert ranks[:top] == list(range(1, top + 1))
        assert returned[str(token)]["rank"] == ranks[-1] or len(returned) == top
        by_rank = sorted(returned.values(), key=lambda entry: entry["rank"])
        assert [e["logprob"] for e in by_rank] == sorted((e["logprob"] for e in by_rank), reverse=True)
        assert set(returned[str(token)]) == {"logprob", "rank", "decoded_token"}
    assert len(choice["token_ids"]) == 1


async def test_greedy_tokens_have_rank_one_in_prompt_logprobs(backend):
    """Remote verification relies on it: a drafted token of rank 1 is accepted, and one new token follows."""
    free = (await complete(backend, return_token_ids=True))["choices"][0]
    prompt, new = free["prompt_token_ids"], free["token_ids"]
    returned = await complete(
        backend, prompt=prompt + new[:4], max_tokens=1, prompt_logprobs=1, return_token_ids=True
    )
    choice = returned["choices"][0]
    assert [entry[str(t)]["rank"] for t, entry in zip(new, choice["prompt_logprobs"][-4:], strict=False)] == [
        1
    ] * 4
    assert choice["token_ids"] == new[4:5]
    wrong = [*new[:2], (new[2] + 1) % 300, new[3]]
    returned = await complete(backend, prompt=prompt + wrong, max_tokens=1, prompt_logprobs=1)
    entry = returned["choices"][0]["prompt_logprobs"][len(prompt) + 2]
    assert entry[str(wrong[2])]["rank"] > 1
    assert entry[str(new[2])]["rank"] == 1


async def test_max_tokens_zero_scores_or_echoes_the_prompt(backend):
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
    returned, new = choice["logprobs"], choice["token_ids"]
    ids = [*choice["prompt_token_ids"], *new] if echo else new
    assert returned["token_ids"] == ids
    assert {len(returned[name]) for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset")} == {
        len(ids)
    }
    assert [returned["token_logprobs"][0] is None, returned["top_logprobs"][0] is None] == [echo, echo]
    for token, logprob, top in list(
        zip(returned["tokens"], returned["token_logprobs"], returned["top_logprobs"], strict=True)
    )[echo:]:
        assert len(top) + (token == "\ufffd") >= 2
        assert token in top
        assert -math.inf < logprob <= max(top.values()) <= 0
    for i, (token, at) in enumerate(zip(returned["tokens"], returned["text_offset"], strict=True)):
        if "\ufffd" not in token:
            assert choice["text"][at : at + len(token)] == token, i
    assert returned["text_offset"] == sorted(returned["text_offset"])


async def test_chat_logprobs_do_not_depend_on_drafting(backend):
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


async def test_a_streamed_chat_has_the_same_logprobs(backend):
    params = {"messages": [{"role": "user", "content": "hi"}], "logprobs": True, "top_logprobs": 2}
    whole = await chat(backend, max_tokens=6, logprobs=True, top_logprobs=2)
    parts = await chunks(backend, inference_methods.CHAT, **params)
    returned = [e for c in parts if c.choices[0].logprobs for e in c.choices[0].logprobs.content]
    assert returned == whole.logprobs.content
    assert "".join(c.choices[0].delta.content or "" for c in parts) == whole.message.content


@pytest.mark.parametrize("echo", [False, True])
async def test_a_streamed_completion_has_the_same_fields(backend, echo):
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


async def test_a_response_with_null_logprobs_survives_a_json_round_trip(backend):
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
async def test_invalid_values_raise_with_the_parameters_name(backend, name, value):
    with pytest.raises(BadRequestError) as caught:
        await complete(backend, **{name: value})
    assert caught.value.param == name
    assert repr(value) in str(caught.value)
