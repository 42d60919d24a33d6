"""Bedrock clients: the same URLs, credentials, copies and errors as the OpenAI package's Bedrock clients."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from bedrock_bodies import ENVIRONMENT, KEYS, REGION, is_signed
from both_clients import Both, Side
from loopback_server import OpenAIServer, reply

import specclient
from specclient.client import module_client

ASK: dict[str, Any] = {"model": "openai.gpt-oss-120b", "messages": [{"role": "user", "content": "hi"}]}
ANY = reply(200, {"id": "1", "object": "list", "data": [{"id": "x", "embedding": [1.5]}], "choices": []})
STATIC = {
    "aws_access_key_id": KEYS["AWS_ACCESS_KEY_ID"],
    "aws_secret_access_key": KEYS["AWS_SECRET_ACCESS_KEY"],
    "aws_session_token": KEYS["AWS_SESSION_TOKEN"],
}
SIGNATURE = ("authorization", "x-amz-date")


@pytest.fixture(autouse=True)
def _no_machine_role(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def make(side: Side, **options: Any) -> Any:
    return side.make(
        "BedrockOpenAI",
        **{"api_key": "bedrock-key-1", "base_url": f"{side.url}/openai/v1", "max_retries": 0, **options},
    )


def call(side: Side, client: Any) -> list[Any]:
    """Call endpoints, and return what the client shows of its settings."""
    side.get(client.chat.completions.create(**ASK))
    side.get(client.responses.create(model="m", input="x"))
    side.get(client.models.list())
    return shown(side, client)


def shown(side: Side, client: Any) -> list[Any]:
    return [client.base_url, client.api_key, client.aws_region, client.max_retries, dict(client.auth_headers)]


OPTIONS: dict[str, dict[str, Any]] = {
    "key": {},
    "region": {"aws_region": "us-east-1"},
    "headers and query": {
        "organization": "org",
        "project": "p",
        "default_headers": {"X-Mine": "1"},
        "default_query": {"x": 1},
    },
}


@pytest.mark.parametrize("name", OPTIONS)
def test_options_have_the_same_effect(both: Both, name: str) -> None:
    both.same(lambda side: call(side, make(side, **OPTIONS[name])), *[ANY] * 3)


@pytest.mark.parametrize("path", ["/v1/", "/openai/v1/responses", "/v1/responses/x/cancel", ""])
def test_the_url_of_a_method_is_that_of_the_api(both: Both, path: str) -> None:
    both.same(lambda side: call(side, make(side, base_url=side.url + path)), *[ANY] * 3)


AWS: dict[str, dict[str, Any]] = {
    "static": {**STATIC, "aws_region": REGION},
    "a function": {"aws_credentials_provider": lambda: _Keys(), "aws_region": REGION},
    "the environment": {},
}


class _Keys:
    access_key, secret_key, token = KEYS.values()


@pytest.mark.parametrize("name", AWS)
def test_signed_requests_differ_in_nothing_but_the_signature(
    both: Both, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    if name == "the environment":
        for variable, value in ENVIRONMENT.items():
            monkeypatch.setenv(variable, value)
    signed: list[bool] = []

    def scenario(side: Side) -> Any:
        found = call(side, make(side, api_key=None, **AWS[name]))
        server: Any = _Address(side.url)
        signed.extend(is_signed(each, server, service="bedrock-mantle") for each in side.requests)
        return found

    happened = both.same(scenario, *[ANY] * 3, hide=SIGNATURE)
    assert signed == [True] * 6
    assert all(request["headers"]["x-amz-content-sha256"] for request in happened.sent)


class _Address:
    """A server of which only the URL is known."""

    def __init__(self, url: str) -> None:
        self.url = url


def test_a_profile_signs_and_names_the_region(
    both: Both, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = tmp_path / "config"
    config.write_text(
        f"[profile work]\nregion = {REGION}\naws_access_key_id = A\naws_secret_access_key = b\n"
    )
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    both.same(
        lambda side: call(side, make(side, api_key=None, aws_profile="work")),
        *[ANY] * 3,
        hide=(*SIGNATURE, "x-amz-content-sha256"),
    )


@pytest.mark.parametrize("retries", [0, 1])
def test_a_function_gives_a_token_for_each_attempt(both: Both, retries: int) -> None:
    def scenario(side: Side) -> Any:
        tokens = iter(["t-1", "t-2", "t-3", "t-4"])

        async def afresh() -> str:
            return next(tokens)

        source = afresh if side.is_async else lambda: next(tokens)
        client = make(side, api_key=None, bedrock_token_provider=source, max_retries=1)
        side.get(client.chat.completions.create(**ASK))
        side.get(client.with_options(timeout=3).chat.completions.create(**ASK))
        return shown(side, client)

    answers = [reply(500, b"", {"retry-after-ms": "1"})] * retries
    both.same(scenario, *answers, ANY, ANY)


BAD_TOKENS: dict[str, Any] = {"a number": lambda: 3, "nothing": lambda: "", "an error": lambda: 1 / 0}


@pytest.mark.parametrize("name", BAD_TOKENS)
def test_a_function_that_gives_no_token_raises_the_same_error(both: Both, name: str) -> None:
    def scenario(side: Side) -> Any:
        client = make(side, api_key=None, bedrock_token_provider=BAD_TOKENS[name])
        return side.get(client.chat.completions.create(**ASK))

    assert both.same(scenario).error is not None


BAD: dict[str, dict[str, Any]] = {
    "a function as key": {"api_key": lambda: "x"},
    "an empty key": {"api_key": ""},
    "a blank key": {"api_key": "  "},
    "key and function": {"bedrock_token_provider": lambda: "x"},
    "key and keys": STATIC,
    "key and profile": {"aws_profile": "x"},
    "half a pair": {"api_key": None, "aws_access_key_id": "x"},
    "a token alone": {"api_key": None, "aws_session_token": "x"},
    "an empty pair": {"api_key": None, "aws_access_key_id": "", "aws_secret_access_key": " "},
    "a blank session": {"api_key": None, **STATIC, "aws_session_token": " "},
    "keys and profile": {"api_key": None, **STATIC, "aws_profile": "x"},
    "a blank profile": {"api_key": None, "aws_profile": " "},
    "a blank region": {"aws_region": " "},
    "an odd region": {"aws_region": "Europe"},
    "no region": {"base_url": None},
    "no region to sign for": {"api_key": None, **STATIC},
    "no encryption": {"base_url": "http://bedrock-mantle.us-east-1.api.aws/openai/v1"},
    "another region": {
        "base_url": "https://bedrock-mantle.us-east-1.api.aws/openai/v1",
        "aws_region": "eu-west-1",
    },
    "an admin key": {"admin_api_key": "x"},
    "a residency": {"data_residency": "eu"},
    "unknown": {"nonsense": 1},
}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("name", BAD)
def test_invalid_options_raise_the_same_error(both: Both, name: str) -> None:
    happened = both.same(lambda side: make(side, **BAD[name]))
    assert happened.error is not None


ADDRESSES: dict[str, dict[str, Any]] = {
    "region": {"aws_region": "ap-southeast-2"},
    "blank": {"aws_region": "us-east-1", "base_url": " "},
    "mantle": {"base_url": "https://bedrock-mantle.us-west-2.api.aws/openai/v1/"},
    "runtime": {"base_url": "https://bedrock-runtime.us-west-2.amazonaws.com/openai/v1"},
    "fips": {"base_url": "https://bedrock-runtime-fips.us-gov-west-1.amazonaws.com/v1", "aws_region": None},
    "china": {"base_url": "https://bedrock-runtime.cn-north-1.amazonaws.com.cn/v1"},
    "signed": {"api_key": None, **STATIC, "aws_region": "eu-west-1"},
}


@pytest.mark.parametrize("variable", [None, "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_BEDROCK_BASE_URL"])
def test_addresses_follow_from_options_and_variables(
    both: Both, monkeypatch: pytest.MonkeyPatch, variable: str | None
) -> None:
    if variable is not None:
        monkeypatch.setenv(variable, "https://x.test/v1" if variable.endswith("URL") else "us-west-2")

    def outcome(side: Side, options: dict[str, Any]) -> Any:
        try:
            return shown(side, make(side, **{"base_url": None, **options}))
        except side.lib.OpenAIError as error:
            return str(error).partition(".")[0]

    both.same(lambda side: {name: outcome(side, options) for name, options in ADDRESSES.items()})


def test_variables_give_the_key_and_the_address(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", "env-key")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-for-bedrock")

    def scenario(side: Side) -> Any:
        monkeypatch.setenv("AWS_BEDROCK_BASE_URL", f"{side.url}/v1")
        client = make(side, api_key=None, base_url=None)
        found = call(side, client)
        side.get(make(side, api_key="given", base_url=None).models.list())
        monkeypatch.setenv("AWS_BEDROCK_BASE_URL", "http://127.0.0.1:1/later")
        copied = client.with_options(max_retries=1, aws_region="eu-west-1")
        monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", "later-key")
        side.get(copied.models.list())
        monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", "env-key")
        return found

    both.same(scenario, *[ANY] * 5)


COPIES: dict[str, dict[str, Any]] = {
    "nothing": {},
    "key": {"api_key": "bedrock-key-2"},
    "keys": {**STATIC, "aws_region": REGION},
    "a function": {"bedrock_token_provider": None},
    "region": {"aws_region": "us-west-2"},
    "query": {"default_query": {"y": 2}},
    "headers": {"set_default_headers": {"X-Mine": "2"}},
    "timeout": {"timeout": 3, "max_retries": 1},
    "two kinds": {"api_key": "x", "aws_profile": "y"},
    "a function as key": {"api_key": lambda: "x"},
    "a residency": {"data_residency": "eu"},
    "an admin key": {"admin_api_key": "x"},
    "both headers": {"default_headers": {"a": "b"}, "set_default_headers": {"a": "b"}},
    "unknown": {"nonsense": 1},
}


@pytest.mark.parametrize("name", COPIES)
def test_options_of_copies_have_the_same_effect(both: Both, name: str) -> None:
    def scenario(side: Side) -> Any:
        client = make(side, default_query={"x": 1}, default_headers={"X-Mine": "1"})
        copied = client.with_options(**COPIES[name])
        side.get(copied.chat.completions.create(**ASK))
        return [*shown(side, copied), type(copied).__name__]

    both.same(scenario, ANY, hide=SIGNATURE if name == "keys" else ())


def test_a_copy_of_a_signing_client_signs_for_its_region(both: Both) -> None:
    def scenario(side: Side) -> Any:
        client = make(side, api_key=None, **STATIC, aws_region="us-east-1")
        copied = client.with_options(aws_region=REGION)
        side.get(copied.chat.completions.create(**ASK))
        assert is_signed(side.requests[-1], _Address(side.url), service="bedrock-mantle")  # type: ignore[arg-type]
        bearer = copied.with_options(api_key="k")
        side.get(bearer.chat.completions.create(**ASK))
        return [shown(side, copied), shown(side, bearer)]

    both.same(scenario, ANY, ANY, hide=SIGNATURE)


def test_attributes_can_be_set_later(both: Both) -> None:
    def scenario(side: Side) -> Any:
        client = make(side, aws_region="us-east-1")
        client.api_key = "bedrock-key-2"
        side.get(client.models.list())
        client.base_url = f"{side.url}/elsewhere/"
        side.get(client.models.list())
        follows = make(side, base_url=None, aws_region="us-east-1")
        follows.aws_region = "eu-west-1"
        with_url = str(follows.with_options(max_retries=1).base_url)
        return [shown(side, client), with_url, follows.aws_region]

    both.same(scenario, ANY, ANY)


REFUSED: dict[str, tuple[dict[str, Any], Any]] = {
    "a key in the headers of a call": ({}, {"extra_headers": {"Authorization": "Bearer x"}}),
    "a key in the headers of a client": ({"default_headers": {"authorization": "x"}}, {}),
    "the same, signed": (
        {"api_key": None, **STATIC, "aws_region": REGION},
        {"extra_headers": {"Authorization": "x"}},
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_another_key_is_refused(both: Both, name: str) -> None:
    options, more = REFUSED[name]
    happened = both.same(lambda side: side.get(make(side, **options).chat.completions.create(**ASK, **more)))
    assert happened.error is not None
    assert happened.sent == []


@pytest.mark.parametrize("signed", [False, True])
def test_other_origins_get_no_key(both: Both, signed: bool) -> None:
    keys = {"api_key": None, **STATIC, "aws_region": REGION} if signed else {}
    with OpenAIServer() as other:
        happened = both.same(
            lambda side: side.get(make(side, **keys).get(f"{other.url}/v1/x", cast_to=object))
        )
        assert happened.error is not None
        assert other.requests == []


def test_redirects_of_signed_requests_are_not_followed(both: Both) -> None:
    def scenario(side: Side) -> Any:
        client = make(side, api_key=None, **STATIC, aws_region=REGION)
        return side.get(client.get("/x", cast_to=object))

    both.same(scenario, reply(307, b"", {"location": "/v1/there"}), hide=SIGNATURE)
    both.same(
        lambda side: side.get(
            make(side, api_key=None, **STATIC, aws_region=REGION).get(
                "/x", cast_to=object, options={"follow_redirects": True}
            )
        )
    )


def test_without_credentials_nothing_is_sent(both: Both) -> None:
    happened = both.same(
        lambda side: side.get(make(side, api_key=None, aws_region=REGION).chat.completions.create(**ASK))
    )
    assert happened.error is not None
    assert happened.sent == []


def test_calls_have_a_price_and_errors_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    with OpenAIServer() as server:
        client = specclient.BedrockOpenAI(
            **STATIC, aws_region=REGION, base_url=f"{server.url}/openai/v1", max_retries=0
        )
        with client:
            answer = client.chat.completions.create(**ASK | {"model": "openai.gpt-oss-120b-1:0"})
            assert answer.meta.cost.total is not None
            server.script(reply(403, {"error": {"message": " ".join(KEYS.values())}}))
            with pytest.raises(specclient.PermissionDeniedError) as caught:
                client.chat.completions.create(**ASK)
        held = (vars(caught.value), client.core.options, client._state, client.core.endpoint)
        text = f"{caught.value} {held}"
    for secret in (KEYS["AWS_ACCESS_KEY_ID"], KEYS["AWS_SESSION_TOKEN"]):
        assert secret not in text
    assert re.search("redacted", str(caught.value))


def test_the_module_has_a_bedrock_client(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    if both.is_async:
        pytest.skip("the module's client is synchronous")

    def scenario(side: Side) -> Any:
        for name, value in {
            "api_type": "amazon-bedrock", "base_url": f"{side.url}/v1/", "api_key": None, "max_retries": 0,
            "bedrock_token_provider": lambda: "t-1",
        }.items():  # fmt: skip
            monkeypatch.setattr(side.lib, name, value)
        reset = module_client.reset if side.ours else side.lib._reset_client
        reset()
        try:
            side.lib.chat.completions.create(**ASK)
        finally:
            reset()

    both.same(scenario, ANY)
