"""Invalid input: raises errors of the OpenAI client's classes, no later than that client does."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from both_clients import Both, Side
from loopback_server import reply

HI = [{"role": "user", "content": "hi"}]
JUNK: Any = object()

CALLS: dict[str, Callable[[Any], Any]] = {
    "no messages": lambda c: c.chat.completions.create(model="m"),
    "no model": lambda c: c.chat.completions.create(messages=HI),
    "unknown keyword": lambda c: c.chat.completions.create(model="m", messages=HI, temprature=1),
    "positional": lambda c: c.chat.completions.create("m", HI),
    "no prompt": lambda c: c.completions.create(model="m"),
    "no input": lambda c: c.embeddings.create(model="m"),
    "no moderation input": lambda c: c.moderations.create(),
    "unknown embedding keyword": lambda c: c.embeddings.create(model="m", input="x", size=3),
    "unknown response keyword": lambda c: c.responses.create(model="m", input="x", size=3),
    "a value not serializable as JSON": lambda c: c.chat.completions.create(
        model="m", messages=HI, stop=JUNK
    ),
    "a nested value not serializable as JSON": lambda c: c.chat.completions.create(
        model="m", messages=[{"content": JUNK}]
    ),
    "metadata not serializable as JSON": lambda c: c.responses.create(
        model="m", input="x", metadata={"a": JUNK}
    ),
    "NaN": lambda c: c.chat.completions.create(model="m", messages=HI, temperature=math.nan),
    "infinity": lambda c: c.completions.create(model="m", prompt="x", temperature=math.inf),
    "a pydantic class to create": lambda c: c.chat.completions.create(
        model="m", messages=HI, response_format=_model()
    ),
    "retrieve without an ID": lambda c: c.responses.retrieve(),
    "retrieve with an empty ID": lambda c: c.responses.retrieve(""),
    "delete with an empty ID": lambda c: c.models.delete(""),
    "header with a line break": lambda c: c.chat.completions.create(
        model="m", messages=HI, extra_headers={"x": "a\nb"}
    ),
    "header with non-ASCII text": lambda c: c.chat.completions.create(
        model="m", messages=HI, extra_headers={"x": "ä€"}
    ),
    "no such resource": lambda c: c.nonsense.create(),
    "no such method": lambda c: c.chat.completions.nonsense(),
}


def _model() -> Any:
    import pydantic

    return pydantic.create_model("Mine", a=(int, ...))


#: Calls that intentionally raise another class, or raise earlier: a subclass of OpenAIError of this package.
DIFFERENT = {
    "a value not serializable as JSON",
    "a nested value not serializable as JSON",
    "metadata not serializable as JSON",
    "NaN",
    "infinity",
    "header with a line break",
    "header with non-ASCII text",
}


@pytest.mark.parametrize("name", CALLS)
def test_invalid_calls_raise_the_same_classes_and_send_nothing(both: Both, name: str) -> None:
    theirs, ours = both.run(lambda side: side.get(CALLS[name](side.client)))
    assert theirs.error is not None
    assert ours.error is not None, name
    assert ours.sent == theirs.sent == []
    missing = theirs.error["classes"] - ours.error["classes"]
    assert not missing or (name in DIFFERENT and "OpenAIError" in ours.error["classes"]), (
        ours.error,
        theirs.error,
    )


SAME: dict[str, Callable[[Any], Any]] = {
    "empty messages": lambda c: c.chat.completions.create(model="m", messages=[]),
    "messages of another type": lambda c: c.chat.completions.create(model="m", messages="hi"),
    "a tuple of messages": lambda c: c.chat.completions.create(model="m", messages=tuple(HI)),
    "wrong types": lambda c: c.chat.completions.create(model="m", messages=HI, temperature="hot", n="2"),
    "empty text as input": lambda c: c.embeddings.create(model="m", input=""),
    "input of a wrong type": lambda c: c.embeddings.create(model="m", input=3),
    "an integer as input": lambda c: c.responses.create(model="m", input=3),
}


@pytest.mark.parametrize("name", SAME)
def test_unusual_values_are_sent_unchecked_for_the_server_to_reject(both: Both, name: str) -> None:
    refusal = reply(
        400, {"error": {"message": "no", "type": "invalid_request_error", "param": "x", "code": None}}
    )
    assert both.same(lambda side: side.get(SAME[name](side.client)), refusal).error is not None


OPTIONS: dict[str, dict[str, Any]] = {
    "negative retries": {"max_retries": -1},
    "no retries": {"max_retries": None},
    "text retries": {"max_retries": "2"},
    "fractional retries": {"max_retries": 1.5},
    "unknown": {"nonsense": 1},
}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("name", OPTIONS)
def test_invalid_client_options_raise_the_same_classes(both: Both, name: str) -> None:
    theirs, ours = both.run(lambda side: side.make(api_key="k", base_url=side.url, **OPTIONS[name]))
    assert theirs.error is not None
    assert ours.error is not None
    assert theirs.error["classes"] <= ours.error["classes"], (ours.error, theirs.error)


@pytest.mark.parametrize("name", ["negative retries", "no retries", "unknown"])
def test_invalid_options_of_a_copy_raise_the_same_classes(both: Both, name: str) -> None:
    theirs, ours = both.run(lambda side: side.client.with_options(**OPTIONS[name]))
    assert theirs.error is not None
    assert ours.error is not None
    assert theirs.error["classes"] <= ours.error["classes"], (ours.error, theirs.error)


@pytest.mark.parametrize("url", ["localhost:8000/v1", "/v1", "ftp://x.test", "https://", "::", "http://x:y"])
def test_an_invalid_base_url_raises_a_configuration_error_that_quotes_it(both: Both, url: str) -> None:
    """The OpenAI client raises at the first call, and a connection error."""

    def scenario(side: Side) -> Any:
        client = side.make(api_key="k", base_url=url, max_retries=0)
        side.get(client.chat.completions.create(model="m", messages=HI))

    theirs, ours = both.run(scenario)
    assert theirs.error is not None
    assert ours.error is not None
    assert {"ConfigurationError", "ValueError", "OpenAIError"} <= ours.error["classes"]
    assert repr(url) in ours.error["text"]


def test_a_missing_key_raises_at_the_first_call(both: Both) -> None:
    """The OpenAI client raises when created; ours can be created without a key, for local models."""

    def scenario(side: Side) -> Any:
        side.get(side.make().chat.completions.create(model="m", messages=HI))

    theirs, ours = both.run(scenario)
    assert theirs.error is not None
    assert ours.error is not None
    assert "OpenAIError" in theirs.error["classes"] & ours.error["classes"]
    assert "OPENAI_API_KEY" in ours.error["text"]


@pytest.mark.parametrize("name", ["http_client", "timeout", "base_url"])
def test_options_of_wrong_types_raise_when_the_client_is_created(both: Both, name: str) -> None:
    """The OpenAI client raises later."""

    def scenario(side: Side) -> Any:
        side.make(**{"api_key": "k", "base_url": side.url, name: JUNK})

    _, ours = both.run(scenario)
    assert ours.error is not None
    assert "ConfigurationError" in ours.error["classes"]
    assert name in ours.error["text"]
