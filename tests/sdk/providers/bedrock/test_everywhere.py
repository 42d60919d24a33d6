"""Bedrock where every provider is: routes, budgets, prices, settings, the gateway, probes."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
from bedrock_bodies import (
    ENVIRONMENT,
    KEYS,
    MODEL,
    failure,
    frames,
    is_signed,
    sample,
    settings,
    streamed,
    whole,
)
from botocore.credentials import Credentials
from click.testing import CliRunner
from gateway_server import Served
from loopback_server import OpenAIServer, reply
from specclient_cli.main import cli

from specclient import (
    APIResponseValidationError,
    AsyncOpenAI,
    Budget,
    BudgetExceededError,
    OpenAI,
    Policy,
    Provider,
    Settings,
)
from specclient.budgets.bounds import bound_of
from specclient.prices.prices import Prices
from specclient.types.inference_methods import CHAT
from specclient.types.request import PerCallOptions, Request
from specclient.types.route import Decision
from specclient.types.usage import Usage

pytestmark = pytest.mark.anyio

ROUTE = f"bedrock/{MODEL}"
MESSAGES: list[Any] = [{"role": "user", "content": "Say something."}]
TEXT = "The quick brown fox jumps."
ARN = "arn:aws:bedrock:us-east-1:123456789012:"


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize(
    ("model", "dollars"),
    [
        ("amazon.nova-pro-v1:0", "0.8"),
        ("us.amazon.nova-pro-v1:0", "0.8"),
        ("global.anthropic.claude-sonnet-4-5-20250929-v1:0", "3"),
        ("eu.anthropic.claude-sonnet-4-5-20250929-v1:0", "3.3"),
        ("anthropic.claude-sonnet-4-5-20250929-v1:0", "3.3"),
        ("arn:aws:bedrock:us-east-1::foundation-model/anthropic.claude-sonnet-4-5-20250929-v1:0", "3.3"),
        (f"{ARN}inference-profile/global.anthropic.claude-sonnet-4-5-20250929-v1:0", "3"),
        (f"{ARN}application-inference-profile/abc123", None),
        (f"{ARN}provisioned-model/xyz", None),
        (f"{ARN}imported-model/amazon", None),
        ("apac.anthropic.claude-fable-5-1", None),
        ("nobody.nothing-v1:0", None),
    ],
)
def test_prices_follow_from_the_id_and_its_geography(model: str, dollars: str | None) -> None:
    cost = Prices(Settings()).price(
        Usage(prompt=1_000_000, completion=0), "bedrock", model, price_provider="aws", at=datetime.now(UTC)
    )
    assert cost.total == (None if dollars is None else Decimal(dollars))


async def test_auto_fails_over_from_one_region_to_another(openai_server: OpenAIServer) -> None:
    openai_server.script(failure(503, "ServiceUnavailableException"), streamed(frames("text")), whole("text"))
    eu = Provider(name="bedrock-eu", dialect="bedrock", base_url=openai_server.url, price_provider="aws")
    candidates = [ROUTE, f"bedrock-eu/{MODEL}"]
    async with AsyncOpenAI(
        config=settings(openai_server), providers=[eu], candidates=candidates, max_retries=0
    ) as client:
        stream = await client.chat.completions.create(
            model="auto", messages=MESSAGES, stream=True, policy=Policy(minimize="cost")
        )
        text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
        answer = await client.chat.completions.create(model="auto", messages=MESSAGES)
    assert text == answer.choices[0].message.content == TEXT
    assert stream.meta.provider in ("bedrock", "bedrock-eu")
    assert [part.purpose for part in stream.meta.parts] == ["call", "failover"]
    assert stream.meta.cost.nano == answer.meta.cost.nano
    assert len(openai_server.requests) == 3


def test_a_hard_budget_is_checked_before_anything_is_sent(openai_server: OpenAIServer) -> None:
    budget = Budget(name="small", usd="0.000001")
    with (
        OpenAI(config=settings(openai_server), budgets=[budget]) as client,
        pytest.raises(BudgetExceededError),
    ):
        client.chat.completions.create(model=ROUTE, messages=MESSAGES, max_tokens=100)
    assert openai_server.requests == []


def test_the_gateway_serves_bedrock_behind_openais_and_anthropics_apis(openai_server: OpenAIServer) -> None:
    openai_server.script(whole("text"), streamed(frames("tools")), whole("thinking"), whole("text"))
    with Served(settings(openai_server), key="k") as served:
        with openai.OpenAI(base_url=served.base_url, api_key="k", max_retries=0) as client:
            answer = client.chat.completions.create(model=ROUTE, messages=MESSAGES)
            stream = client.chat.completions.create(model=ROUTE, messages=MESSAGES, stream=True)
            calls = [
                call for chunk in stream for choice in chunk.choices for call in choice.delta.tool_calls or ()
            ]
            thought = client.chat.completions.create(model=ROUTE, messages=MESSAGES)
        with anthropic.Anthropic(base_url=served.url, api_key="k", max_retries=0) as messages:
            message = messages.messages.create(model=ROUTE, max_tokens=99, messages=MESSAGES)
        rows = served.client.ledger.rows()
    assert answer.choices[0].message.content == TEXT
    names = [call.function.name for call in calls if call.function is not None]
    assert [name for name in names if name] == ["weather", "now"]
    assert thought.choices[0].message.content == "Quick."
    assert message.content[0].text == TEXT  # type: ignore[union-attr]
    assert all(is_signed(received, openai_server) for received in openai_server.requests)
    assert len([row for row in rows if row.cost_nano]) == 4


def test_the_gateway_names_what_its_environment_lacks(
    openai_server: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in KEYS:
        monkeypatch.delenv(name)
    with (
        Served(settings(openai_server)) as served,
        openai.OpenAI(base_url=served.base_url, api_key="k", max_retries=0) as client,
        pytest.raises(openai.AuthenticationError, match="AWS_BEARER_TOKEN_BEDROCK") as caught,
    ):
        client.chat.completions.create(model=ROUTE, messages=MESSAGES)
    assert caught.value.code == "provider_key_missing"


def test_settings_name_the_region_and_a_profile(
    openai_server: OpenAIServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in KEYS:
        monkeypatch.delenv(name)
    stored = tmp_path / "credentials"
    access, secret, token = KEYS.values()
    stored.write_text(
        f"[work]\naws_access_key_id={access}\naws_secret_access_key={secret}\naws_session_token={token}\n"
    )
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(stored))
    tables = {
        "bedrock": {"location": "ap-south-1"},
        "bedrock-work": {
            "dialect": "bedrock",
            "base_url": openai_server.url,
            "location": "us-west-2",
            "credentials": "work",
        },
    }
    openai_server.script(whole("text"))
    with OpenAI(config=Settings.model_validate({"providers": tables})) as client:
        places = client.router.destinations
        assert places.get("bedrock").base_url == "https://bedrock-runtime.ap-south-1.amazonaws.com"
        answer = client.chat.completions.create(model=f"bedrock-work/{MODEL}", messages=MESSAGES)
    assert answer.meta.provider == "bedrock-work"
    assert is_signed(openai_server.requests[0], openai_server, region="us-west-2")


def test_credentials_of_botocore_may_be_given(
    openai_server: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in KEYS:
        monkeypatch.delenv(name)
    keys = Credentials(*KEYS.values())
    openai_server.script(whole("text"), whole("text"))
    for credentials in (keys, lambda: keys):
        own = Provider(name="bedrock", base_url=openai_server.url, credentials=credentials)
        with OpenAI(providers=[own], ledger="off") as client:
            client.chat.completions.create(model=ROUTE, messages=MESSAGES)
    assert all(is_signed(received, openai_server) for received in openai_server.requests)


def test_a_probe_asks_the_model_and_finds_no_speculation(
    openai_server: OpenAIServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "specclient.toml"
    config.write_text(f'[providers.bedrock]\nbase_url = "{openai_server.url}"\n')
    openai_server.script(*[whole("text")] * 12)
    done = CliRunner().invoke(cli, ["--config", str(config), "models", "probe", ROUTE])
    assert done.exit_code == 0, done.output
    assert openai_server.requests
    paths = {received.path.rpartition("/")[2] for received in openai_server.requests}
    assert paths <= {"converse", "converse-stream"}
    show = CliRunner().invoke(cli, ["--config", str(config), "models", "show", ROUTE])
    assert show.exit_code == 0, show.output
    assert "dialect           bedrock" in show.output


def test_an_answer_that_is_no_json_is_one_clear_error(openai_server: OpenAIServer) -> None:
    openai_server.script(reply(200, b"<html>", {"content-type": "text/html"}))
    with (
        OpenAI(config=settings(openai_server), max_retries=0) as client,
        pytest.raises(APIResponseValidationError, match="does not match the API"),
    ):
        client.chat.completions.create(model=ROUTE, messages=MESSAGES)


#: Requests that may cost more than their plain parameters say: parameters, and tokens of the answer.
DEARER: dict[str, tuple[dict[str, Any], int]] = {
    "a limit of the API's own": ({"extra_body": {"inferenceConfig": {"maxTokens": 900}}}, 900),
    "a limit of the model": ({"extra_body": {"additionalModelRequestFields": {"max_tokens": 900}}}, 900),
}


@pytest.mark.parametrize("name", DEARER)
def test_a_budget_reserves_what_fields_of_the_api_allow(name: str) -> None:
    params, most = DEARER[name]
    assert _bound({"max_tokens": 9, **params}).completion == most


def _bound(params: dict[str, Any], parts: list[Any] | None = None) -> Any:
    given = dict(params)
    options = PerCallOptions(body=given.pop("extra_body", {}))
    messages = [{"role": "user", "content": parts or "hi"}]
    request = Request(CHAT, ROUTE, {"messages": messages, **given}, options=options)
    decision = Decision(ROUTE, "bedrock", MODEL, (), "named by the caller")
    return bound_of(request, decision, Prices(Settings()), NoHistory(), "aws")


class NoHistory:
    """Routes without finished calls."""

    def longest(self, route: str) -> int | None:
        return None

    def prompt_pace(self, route: str) -> float | None:
        return None

    def predict(self, route: str, *, max_tokens: int | None = None) -> Any:
        raise AssertionError(route)


def test_a_budget_counts_media_as_the_whole_context_and_caches_at_their_price() -> None:
    plain = _bound({"max_tokens": 9})
    for block in ({"document": {"format": "pdf"}}, {"video": {}}, {"type": "video_url"}):
        assert _bound({"max_tokens": 9}, [block]).prompt > 100 * plain.prompt
    cached = _bound({"max_tokens": 9}, [{"type": "text", "text": "hi"}, {"cachePoint": {"type": "default"}}])
    assert cached.nano > plain.nano


def test_a_budget_refuses_what_bedrock_runs_itself_and_does_not_price_other_tiers() -> None:
    own = {"extra_body": {"toolConfig": {"tools": [{"systemTool": {"name": "search"}}]}}}
    assert "systemTool" in _bound(own).unbounded
    assert _bound({"extra_body": {"toolConfig": {"tools": [{"toolSpec": {"name": "f"}}]}}}).unbounded is None
    assert _bound({"tools": [{"toolSpec": {"name": "f"}}, {"cachePoint": {}}]}).unbounded is None
    both = {"functionDeclarations": [], "googleSearch": {}}  # of Gemini, whose tools may have several fields
    assert "googleSearch" in _bound({"tools": [both]}).unbounded
    assert not _bound({"service_tier": "priority"}).priced
    assert not _bound({"extra_body": {"serviceTier": {"type": "flex"}}}).priced
    assert _bound({"service_tier": "default"}).priced


@pytest.mark.parametrize("tier", ["flex", "priority", "reserved"])
def test_tiers_without_a_listed_price_are_unpriced(openai_server: OpenAIServer, tier: str) -> None:
    body = {**sample("tools")["answer"], "serviceTier": {"type": tier}}
    openai_server.script(reply(200, body))
    with OpenAI(config=settings(openai_server)) as client:
        answer = client.chat.completions.create(model=ROUTE, messages=MESSAGES, service_tier=tier)
    assert answer.service_tier == answer.meta.usage.traffic == tier
    assert answer.meta.cost.total is None
