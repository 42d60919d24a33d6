"""Redaction: which parts of a request are secret, and that no error or repr shows them."""

from __future__ import annotations

import pytest

from specclient.errors import APIError, APIResponseValidationError
from specclient.types.wire import Secrets, WireRequest

KEY = "sk-0123456789"


@pytest.mark.parametrize(
    ("name", "value", "echo"),
    [
        ("authorization", f"Bearer {KEY}", KEY),
        ("Authorization", f"Bearer {KEY}", f"Bearer {KEY}"),
        ("x-auth-token", KEY, KEY),
        ("X-Forward", f"Token token={KEY}; realm=x", KEY),
        ("cookie", f'theme=dark; session="{KEY}"', KEY),
        ("api-key", "abcd", "abcd"),
    ],
)
def test_secret_headers_are_redacted(name: str, value: str, echo: str) -> None:
    secrets = Secrets([(name, value)])
    assert secrets.redact(f"you sent {echo}!") == "you sent [redacted]!"
    assert secrets.header(name, value) == "[redacted]"


def test_common_headers_and_short_values_are_not_redacted() -> None:
    secrets = Secrets([("content-type", "application/json"), ("x-debug", "true")], "v=1")
    assert secrets.redact("application/json is true of v 1") == "application/json is true of v 1"
    assert secrets.header("Content-Type", "application/json") == "application/json"


def test_query_values_are_redacted_encoded_and_decoded() -> None:
    secrets = Secrets(query="key=abc%2Fdef%2Bg&version=1")
    assert secrets.redact("abc%2Fdef%2Bg is abc/def+g") == "[redacted] is [redacted]"
    assert secrets.url("http://h/v1?key=abc&v=1") == "http://h/v1?key=[redacted]&v=[redacted]"
    assert secrets.url("http://h/v1") == "http://h/v1"


def test_a_secret_with_a_json_escaped_slash_is_redacted() -> None:
    assert Secrets([("x-key", "abc/def+ghi")]).redact(r'{"a": "abc\/def+ghi"}') == '{"a": "[redacted]"}'


def test_a_longer_secret_is_redacted_before_one_it_contains() -> None:
    assert Secrets([("a", KEY), ("b", f"{KEY}-and-more")]).redact(f"{KEY}-and-more") == "[redacted]"


def test_decoded_bodies_are_redacted() -> None:
    secrets = Secrets([("x-pin", "12345678")])
    body = {"12345678": [12345678, 12345678.5, True, None, {"a": "no 12345678"}]}
    shown = {"[redacted]": ["[redacted]", "[redacted]", True, None, {"a": "no [redacted]"}]}
    assert secrets.redact(body) == shown


def test_every_part_of_an_error_is_redacted() -> None:
    error = APIError(f"bad {KEY}", body={"message": KEY, "code": KEY})
    Secrets([("authorization", f"Bearer {KEY}")]).clean(error)
    assert (str(error), error.message, error.code) == ("bad [redacted]", "bad [redacted]", "[redacted]")
    assert error.body == {"message": "[redacted]", "code": "[redacted]"}


@pytest.mark.parametrize("length", range(4, len(KEY) + 1))
def test_a_truncated_secret_is_redacted(length: int) -> None:
    excerpt = f"it's {KEY[:length]}"
    error = APIResponseValidationError(body=excerpt, message=f"It begins: {excerpt!r}")
    Secrets([("x-key", KEY)]).clean(error)
    assert error.body == "it's [redacted]"
    assert str(error) == 'It begins: "it\'s [redacted]"'


def test_a_requests_repr_shows_neither_headers_nor_url() -> None:
    assert KEY not in repr(WireRequest("GET", f"http://h/?k={KEY}", {"x-key": KEY}))
