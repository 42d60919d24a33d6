"""Keys of the response cache: equal for calls with equal answers alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tiny_models import write_checkpoint

from specclient import AsyncOpenAI, Policy, Strategy
from specclient.call.cached.key import (
    HEADERS_LEFT_OUT,
    LEFT_OUT,
    DestinationMarks,
    UnkeyableError,
    request_digest,
)
from specclient.config import Settings
from specclient.types.chat.chat_completion_message import ChatCompletionMessage
from specclient.types.inference_methods import CHAT, COMPLETION, RESPONSE
from specclient.types.model_aliases import ModelAliases
from specclient.types.request import NativeRequest, OriginOptions, PerCallOptions, Request, WrittenBody

MESSAGES = [{"role": "user", "content": "hi"}]


def settings(**tables: Any) -> Settings:
    providers = {name: {"base_url": f"http://{name}.test/v1", "api_key": "k"} for name in ("one", "two")}
    given = {"ledger": "off", "providers": providers, "default_provider": "one", "candidates": ["one/m"]}
    return Settings.model_validate({**given, **tables})


def key(request: Request, owner: str = "", client: AsyncOpenAI | None = None, **tables: Any) -> str:
    router = (client or AsyncOpenAI(config=settings(**tables))).router
    return request_digest(request, router.named(request), owner, router, DestinationMarks())


def chat(options: dict[str, Any] | None = None, model: str = "one/m", **params: Any) -> Request:
    given = {"messages": MESSAGES, **params}
    return Request(CHAT, model, given, options=PerCallOptions(**(options or {})))


BASE = chat(temperature=0)


@pytest.mark.parametrize(
    "same",
    [
        chat(temperature=0.0),
        chat(temperature=0, model="m"),  # the default provider's
        Request(CHAT, "one/m", {"temperature": 0, "messages": MESSAGES}),
        chat({"timeout": 3, "max_retries": 0, "deadline_s": 9, "follow_redirects": False}, temperature=0),
        chat({"tags": {"a": "b"}, "session": "s", "keeps_received": True}, temperature=0),
        chat({"headers": {"Idempotency-Key": "1", "X-Stainless-Retry-Count": "2"}}, temperature=0),
        chat({"headers": {"x-specclient-cache": "1", "x-specclient-meta": "1"}}, temperature=0),
        chat({"aliases": ModelAliases({"other": "one/m"})}, temperature=0, model="other"),
        *(chat(temperature=0, **{name: "x"}) for name in sorted(LEFT_OUT)),
        *(chat({"body": {name: "x"}}, temperature=0) for name in sorted(LEFT_OUT)),
        *(chat({"headers": {name: "x"}}, temperature=0) for name in sorted(HEADERS_LEFT_OUT)),
    ],
)
def test_what_cannot_change_the_answer_does_not_change_the_key(same: Request):
    assert key(same) == key(BASE)


OTHERS = [
    chat(),
    chat(temperature=1),
    chat(temperature=None),
    chat(temperature=0, model="two/m"),
    chat(temperature=0, model="one/n"),
    chat(temperature=0, max_tokens=5),
    chat(temperature=0, max_tokens=6),
    chat(temperature=0, seed=1),
    chat(temperature=0, n=2),
    chat(temperature=0, store=True),
    chat(temperature=0, service_tier="flex"),
    chat(temperature=0, response_format={"type": "json_object"}),
    chat(temperature=0, tools=[{"type": "function", "function": {"name": "f"}}]),
    chat(temperature=0, tools=[{"function": {"name": "f"}, "type": "function"}]),  # another prompt, perhaps
    chat(temperature=0, messages=[{"role": "system", "content": "hi"}]),
    chat(temperature=0, messages=[{"role": "user", "content": "hi "}]),
    chat(temperature=0, messages=[*MESSAGES, *MESSAGES]),
    chat({"body": {"temperature": 0}}),
    chat({"body": {"top_k": 1}}, temperature=0),
    chat({"drop_params": True}, temperature=0),
    chat({"headers": {"openai-beta": "x"}}, temperature=0),
    chat({"headers": {"authorization": "Bearer other"}}, temperature=0),
    chat({"query": {"api-version": "2"}}, temperature=0),
    chat({"origin": OriginOptions("one", {"authorization": "Bearer own"})}, temperature=0),
    replace(BASE, stream=True),
    replace(BASE, strategy=Strategy(kind="prefill")),
    replace(BASE, method=COMPLETION),
    replace(BASE, policy=Policy(fallbacks=("two/m",))),
]


def test_everything_else_changes_the_key():
    keys = [key(request) for request in (BASE, *OTHERS)]
    assert len(set(keys)) == len(keys)
    assert key(BASE, "alice") not in keys


def test_the_address_of_a_provider_and_its_headers_are_a_part_of_the_key():
    other = {"one": {"base_url": "http://elsewhere.test/v1", "api_key": "k"}}
    keys = {
        key(BASE),
        key(BASE, providers=other),
        key(BASE, client=AsyncOpenAI(config=settings(), default_headers={"x-model-version": "2"})),
        key(BASE, client=AsyncOpenAI(config=settings(), organization="org")),
        key(BASE, client=AsyncOpenAI(config=settings(), base_url="http://own.test/v1")),
    }
    assert len(keys) == 5
    assert key(BASE, client=AsyncOpenAI(config=settings(), api_key="another")) == key(BASE)


def test_a_response_repeats_its_labels_so_they_are_a_part_of_the_key():
    keys = {key(Request(RESPONSE, "one/m", {"input": "x", name: "x"})) for name in LEFT_OUT}
    assert len({*keys, key(Request(RESPONSE, "one/m", {"input": "x"}))}) == len(LEFT_OUT) + 1


def test_a_routed_call_has_the_policy_and_the_candidates_in_its_key():
    auto = chat(temperature=0, model="auto")
    router = AsyncOpenAI(config=settings()).router
    assert router.named(auto) is None
    keys = [
        key(auto),
        key(auto, candidates=["two/m"]),
        key(auto, candidates=["one/m", "two/m"]),
        key(replace(auto, policy=Policy(minimize="latency"))),
        key(replace(auto, policy=Policy(max_cost_usd=1))),
        key(BASE),
    ]
    assert len(set(keys)) == len(keys)
    assert key(replace(auto, policy=Policy())) == key(auto)
    named = settings(policies={"fast": {"minimize": "latency"}})
    assert key(replace(auto, policy="fast"), client=AsyncOpenAI(config=named)) == keys[3]


class Permit:
    """Permits some routes."""

    def __init__(self, *routes: str) -> None:
        self._routes = routes

    def check(self, provider: str, model: str) -> None: ...

    def usable(self, routes: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(route for route in routes if route in self._routes)


def test_a_routed_call_has_the_permitted_candidates_in_its_key():
    both = ["one/m", "two/m"]
    auto = chat(temperature=0, model="auto")
    limited = chat({"permit": Permit("one/m")}, temperature=0, model="auto")
    assert key(auto, candidates=both) != key(limited, candidates=both)
    assert key(limited, candidates=both) == key(auto, candidates=["one/m"])


def test_a_request_in_a_vendors_dialect_has_its_own_body_in_its_key():
    def native(**body: Any) -> Request:
        params = {"messages": MESSAGES, "temperature": 0}
        written = NativeRequest("anthropic", {"model": "m", "messages": MESSAGES, **body}, params)
        return Request(CHAT, "one/m", params, options=PerCallOptions(native=written))

    assert key(native()) != key(native(thinking={"type": "enabled"}))
    assert key(native()) == key(native(metadata={"user_id": "u"}, stream=False))


def test_a_written_body_is_the_same_request():
    params = BASE.params
    written = WrittenBody(b"{}", "one/m", params, {})
    assert key(replace(BASE, options=PerCallOptions(written=written, body=written.extra))) == key(BASE)


def test_messages_may_be_objects_of_the_api():
    message = ChatCompletionMessage(role="assistant", content="hi")
    as_dict = {"content": "hi", "role": "assistant"}
    assert key(chat(messages=[message])) == key(chat(messages=[message]))
    assert key(chat(messages=[message])) in {
        key(chat(messages=[as_dict])),
        key(chat(messages=[dict(reversed(as_dict.items()))])),
    }


def test_a_value_that_can_be_read_once_has_no_key_and_is_not_read():
    parts = iter([{"type": "text", "text": "x"}])
    with pytest.raises(UnkeyableError):
        key(chat(messages=[{"role": "user", "content": parts}]))
    assert list(parts) == [{"type": "text", "text": "x"}]
    with pytest.raises(UnkeyableError):
        key(chat(messages=[{"role": "user", "content": b"bytes"}]))


def test_a_checkpoint_that_changes_is_another_model(tmp_path: Path):
    folder = write_checkpoint(tmp_path / "model")
    local = {"threads": 1, "models": {"mine": {"path": str(folder)}}}
    request = chat(temperature=0, model="local/mine")
    before = key(request, local=local)
    assert key(request, local=local) == before
    config = Path(folder) / "config.json"
    config.write_text(config.read_text() + "\n")
    assert key(request, local=local) != before


def test_long_texts_count_in_full_and_by_their_place():
    long, other = "a" * 5000, "a" * 4999 + "b"
    parts = [{"type": "text", "text": long}, {"type": "text", "text": ""}]
    deep = [{"a": {"b": [[[[[[text]]]]]]}} for text in (long, other)]
    contents = [long, other, "", long + "\ud800", parts, parts[::-1], [long, ""], ["", long], *deep]
    contents += [[long] * 1001, [other, *[long] * 1000]]
    users = [*({"content": each} for each in contents), {"content": "", "name": long}]
    requests = [chat(messages=[{"role": "user", **user}]) for user in users]
    assert len({key(request) for request in requests}) == len(requests)
    assert [key(request) for request in requests] == [key(request) for request in requests]
    assert users[0]["content"] == long, "the request itself was changed"
