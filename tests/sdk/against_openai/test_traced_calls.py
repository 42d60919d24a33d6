"""Wrappers around the `openai` package's methods see our calls as they see the original's."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import openai
import pydantic
import pytest
from both_clients import Both, Side
from loopback_server import events, reply
from openai.resources.chat.completions import AsyncCompletions, Completions
from openai.resources.embeddings import AsyncEmbeddings, Embeddings
from openai.resources.images import AsyncImages, Images
from openai.resources.responses import AsyncResponses, Responses
from openai_calls import RESPONSE

from specclient.types.params import is_given

wrapt = pytest.importorskip("wrapt", reason="the libraries whose wrappers are meant use it")

ASK: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
_METHODS: list[tuple[Any, str]] = [
    *((kind, name) for kind in (Completions, AsyncCompletions) for name in ("create", "parse")),
    *((kind, name) for kind in (Responses, AsyncResponses) for name in ("create", "parse")),
    *((kind, "create") for kind in (Embeddings, AsyncEmbeddings)),
    *((kind, "generate") for kind in (Images, AsyncImages)),
]


class City(pydantic.BaseModel):
    city: str


@contextlib.contextmanager
def _wrapped(methods: list[tuple[Any, str]], wrapper: Callable[..., Any]) -> Iterator[None]:
    """Wrap methods of official classes for a while."""
    before = [(kind, name, vars(kind).get(name)) for kind, name in methods]
    try:
        for kind, name in methods:
            wrapt.wrap_function_wrapper(kind, name, wrapper)
        yield
    finally:
        for kind, name, original in before:
            if original is None:
                delattr(kind, name)
            else:
                setattr(kind, name, original)


@pytest.fixture
def seen() -> Iterator[list[Any]]:
    """The view of wrappers around methods: the method, class and client of the object, and the arguments."""
    noted: list[Any] = []

    def wrapper(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        place = (wrapped.__name__, type(instance).__name__, str(instance._client.base_url).rpartition(":")[0])
        noted.append((*place, args, kwargs))
        return wrapped(*args, **kwargs)

    with _wrapped(_METHODS, wrapper):
        yield noted


@pytest.fixture
def asked() -> Iterator[list[Any]]:
    """The view of wrappers around ``request``: the result's type, the options, and whether it is a stream."""
    noted: list[Any] = []

    def wrapper(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        (cast_to, options) = args
        body = {name: value for name, value in options.json_data.items() if name != "stream"}
        noted.append((cast_to, options.method, options.url, body, bool(kwargs.get("stream"))))
        assert isinstance(instance, openai.OpenAI | openai.AsyncOpenAI)
        return wrapped(*args, **kwargs)

    with _wrapped([(openai.OpenAI, "request"), (openai.AsyncOpenAI, "request")], wrapper):
        yield noted


def _chat(side: Side) -> Any:
    return side.get(side.client.chat.completions.create(**ASK, temperature=0.5, seed=openai.NOT_GIVEN))


def _chat_stream(side: Side) -> Any:
    return side.get(side.client.chat.completions.create(**ASK, stream=True))


def _chat_helper_stream(side: Side) -> Any:
    with side.within(side.client.chat.completions.stream(**ASK)) as stream:
        return side.items(stream)


def _chat_raw(side: Side) -> Any:
    return side.get(side.client.chat.completions.with_raw_response.create(**ASK)).status_code


def _chat_unread(side: Side) -> Any:
    with side.within(side.client.chat.completions.with_streaming_response.create(**ASK)) as response:
        return response.status_code


def _chat_by_path(side: Side) -> Any:
    body = {"model": "m", "messages": ASK["messages"]}
    made = side.client.post("/chat/completions", cast_to=side.lib.types.chat.ChatCompletion, body=body)
    return side.get(made)


def _embedding(side: Side) -> Any:
    return side.get(side.client.embeddings.create(model="m", input="hi", encoding_format="float"))


def _response(side: Side) -> Any:
    return side.get(side.client.responses.create(model="m", input="hi"))


def _image(side: Side) -> Any:
    return side.get(side.client.images.generate(prompt="a fox", model="m")).created


_WHOLE = reply(200, {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": []})
_STREAM = events(
    b'data: {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": '
    b'[{"index": 0, "delta": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}]}\n\n',
    b"data: [DONE]\n\n",
)
_VECTORS = {"object": "list", "model": "m", "data": [{"object": "embedding", "index": 0, "embedding": [1.5]}]}
_SCENARIOS = [
    (_chat, _WHOLE),
    (_chat_stream, _STREAM),
    (_chat_helper_stream, _STREAM),
    (_chat_raw, _WHOLE),
    (_chat_unread, _WHOLE),
    (_embedding, reply(200, {**_VECTORS, "usage": {"prompt_tokens": 1, "total_tokens": 1}})),
    (_response, reply(200, RESPONSE)),
    (_image, reply(200, {"created": 1, "data": []})),
]


@pytest.mark.parametrize(("scenario", "answer"), _SCENARIOS, ids=[s.__name__ for s, _ in _SCENARIOS])
def test_a_wrapper_around_a_method_sees_the_same_call(
    both: Both, seen: list[Any], scenario: Any, answer: Any
) -> None:
    both.same(scenario, answer)
    theirs, ours = seen
    given = [{k: v for k, v in call[-1].items() if v is not None and is_given(v)} for call in seen]
    assert ours[:-1] == theirs[:-1]
    assert {name: given[1].get(name) for name in given[0]} == given[0]


@pytest.mark.parametrize(
    ("scenario", "answer"),
    [*_SCENARIOS, (_chat_by_path, _WHOLE)],
    ids=[*(s.__name__ for s, _ in _SCENARIOS), "_chat_by_path"],
)
def test_a_wrapper_around_request_sees_the_same_call(
    both: Both, asked: list[Any], scenario: Any, answer: Any
) -> None:
    both.same(scenario, answer)
    theirs, ours = asked
    assert ours == theirs


def test_a_parsed_answer_passes_the_wrappers(both: Both, seen: list[Any], asked: list[Any]) -> None:
    def scenario(side: Side) -> Any:
        answer = side.get(side.client.chat.completions.parse(**ASK, response_format=City))
        return answer.choices[0].message.parsed.city

    message = {"role": "assistant", "content": '{"city": "Ulm"}', "refusal": None}
    choice = {"index": 0, "finish_reason": "stop", "logprobs": None, "message": message}
    frame = {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
    both.same(scenario, reply(200, frame))
    assert [call[0] for call in seen] == ["parse", "parse"]
    assert [call[-1]["response_format"] for call in seen] == [City, City]
    assert len(asked) == 2


def test_our_call_options_pass_a_wrapper_and_its_changes_are_sent(both: Both) -> None:
    def wrapper(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        assert kwargs.pop("name") == "a trace"
        return wrapped(*args, **{**kwargs, "extra_headers": {"traceparent": "00-1"}, "seed": 7})

    def scenario(side: Side) -> Any:
        own = {"tags": {"team": "search"}, "session": "42"} if side.ours else {}
        return side.get(side.client.chat.completions.create(**ASK, name="a trace", **own))

    with _wrapped([(Completions, "create"), (AsyncCompletions, "create")], wrapper):
        happened = both.same(scenario, _WHOLE)
    assert happened.sent[0]["body"]["seed"] == 7
    assert happened.sent[0]["headers"]["traceparent"] == "00-1"


def test_a_change_of_the_options_of_request_is_sent(both: Both) -> None:
    def wrapper(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        (cast_to, options) = args
        options.headers = {"traceparent": "00-2"}
        options.json_data["seed"] = 8
        return wrapped(cast_to, options, **kwargs)

    with _wrapped([(openai.OpenAI, "request"), (openai.AsyncOpenAI, "request")], wrapper):
        happened = both.same(_chat, _WHOLE)
    assert happened.sent[0]["body"]["seed"] == 8
    assert happened.sent[0]["headers"]["traceparent"] == "00-2"


def test_the_client_of_a_call_may_be_a_temporary_object(both: Both, seen: list[Any]) -> None:
    def scenario(side: Side) -> Any:
        return side.get(side.client.with_options(timeout=9).chat.completions.create(**ASK))

    both.same(scenario, _WHOLE)
    assert len(seen) == 2
