"""Custom providers in a file or in code, unsupported parameters, and a model named in ``extra_body``."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from loopback_server import OpenAIServer
from pydantic import SecretStr

from specclient import (
    AsyncOpenAI,
    AzureOpenAI,
    Capabilities,
    ConfigurationError,
    OpenAI,
    Provider,
    Settings,
    UnsupportedParameterError,
)
from specclient.config import ANY_VENDOR, PriceSettings, load
from specclient.providers import PRESETS, Endpoint
from specclient.providers.configuration import endpoints
from specclient.providers.probe_cache import ProbeRecord, read_probes, write_probe

ASK: Any = [{"role": "user", "content": "hi"}]
PREDICTION: Any = {"type": "content", "content": "one two"}


def endpoint_of(client: OpenAI | AsyncOpenAI, name: str) -> Endpoint:
    found = client.pipeline.destinations.get(name)
    assert isinstance(found, Endpoint)
    return found


def from_file(folder: Path, text: str, env: dict[str, str] | None = None) -> dict[str, Endpoint]:
    file = folder / "specclient.toml"
    file.write_text(text)
    return endpoints(load(file, env={}), env or {})


# --- defined in a file or in code


def test_a_provider_defined_in_the_configuration(
    openai_server: OpenAIServer, tmp_path: Path, monkeypatch: Any
) -> None:
    (tmp_path / "specclient.toml").write_text(
        f'[providers.mine]\nbase_url = "{openai_server.base_url}"\napi_key_env = "MINE_KEY"\n'
        'key_header = "X-Api-Key"\ncapabilities = { prediction = true, verification = "echo" }\n'
    )
    monkeypatch.setenv("MINE_KEY", "sk-mine")
    with OpenAI(config=tmp_path / "specclient.toml") as client:
        client.chat.completions.create(model="mine/m-large", messages=ASK, prediction=PREDICTION)
        known = endpoint_of(client, "mine").capabilities
    sent = openai_server.requests[0]
    assert sent.headers["x-api-key"] == "sk-mine"
    assert "authorization" not in sent.headers
    assert sent.json["prediction"] == PREDICTION
    assert known == Capabilities(prediction=True, verification="echo")


def test_a_provider_defined_in_code(openai_server: OpenAIServer) -> None:
    mine = Provider(
        name="mine",
        base_url=openai_server.base_url,
        key="sk-mine",
        headers={"x-team": "a"},
        stream_usage=False,
    )
    with OpenAI(config=Settings(), providers=[mine]) as client:
        for _ in client.chat.completions.create(model="mine/m", messages=ASK, stream=True):
            pass
    sent = openai_server.requests[0]
    assert (sent.headers["authorization"], sent.headers["x-team"]) == ("Bearer sk-mine", "a")
    assert "stream_options" not in sent.json
    assert "sk-mine" not in repr(mine)


@pytest.mark.anyio
async def test_the_key_can_be_a_function(openai_server: OpenAIServer) -> None:
    mine = Provider(name="mine", base_url=openai_server.base_url, key=lambda: "fresh")
    async with AsyncOpenAI(config=Settings(default_provider="mine"), providers=[mine]) as client:
        await client.chat.completions.create(model="m", messages=ASK)
    assert openai_server.requests[0].headers["authorization"] == "Bearer fresh"


def test_code_overrides_the_file_and_unset_fields_are_kept(tmp_path: Path) -> None:
    settings = Settings.model_validate({"providers": {"vllm": {"base_url": "http://file:8000/v1"}}})
    changed = Provider(
        name="vllm", base_url="http://gpu:9/v1", key_env=("A", "B"), capabilities=Capabilities(strict=True)
    )
    known = endpoints(settings, {"B": "b"}, providers=[changed])["vllm"]
    preset = PRESETS["vllm"].capabilities
    assert (known.base_url, known.key, known.key_env) == ("http://gpu:9/v1", SecretStr("b"), ("A", "B"))
    assert known.capabilities.strict
    assert (known.capabilities.verification, known.capabilities.prediction) == (preset.verification, False)


def test_a_provider_names_the_chat_templates_of_its_models(tmp_path: Path) -> None:
    one = from_file(tmp_path, '[providers.vllm]\ntemplate = "someone/model"\n')["vllm"]
    assert one.template_of("anything") == "someone/model"
    each = from_file(tmp_path, '[providers.vllm.template]\na = "x.jinja"\n"*" = "rest"\n')["vllm"]
    assert (each.template_of("a"), each.template_of("b")) == ("x.jinja", "rest")
    assert from_file(tmp_path, "")["vllm"].template_of("a") is None


def test_the_dialect_of_a_provider_can_be_set(tmp_path: Path) -> None:
    known = from_file(
        tmp_path, '[providers.claude]\nbase_url = "http://127.0.0.1:9"\ndialect = "anthropic"\n'
    )
    assert (known["claude"].dialect, known["claude"].key_header) == ("anthropic", "x-api-key")
    known = from_file(tmp_path, '[providers.anthropic]\ndialect = "openai"\n', {})
    assert (known["anthropic"].dialect, known["anthropic"].key_header) == ("openai", "authorization")


def test_a_configured_stream_usage_overrides_the_preset() -> None:
    changed = [Provider(name="mistral", stream_usage=True), Provider(name="groq", stream_usage=False)]
    known = endpoints(Settings(), {}, providers=changed)
    assert "stream_options" not in known["mistral"].quirks.refused
    assert set(PRESETS["mistral"].quirks.refused) == {*known["mistral"].quirks.refused, "stream_options"}
    assert (known["mistral"].requests_usage, known["groq"].requests_usage) == (True, False)


# --- capabilities known from a URL or a name


def test_the_url_of_a_hosted_provider_selects_its_preset(tmp_path: Path) -> None:
    known = from_file(tmp_path, '[providers.mine]\nbase_url = "https://api.mistral.ai/v1/"\n')["mine"]
    row = PRESETS["mistral"]
    assert (known.capabilities, known.quirks, known.price_provider) == (
        row.capabilities,
        row.quirks,
        "mistral",
    )
    assert not known.key_required


def test_the_name_of_a_server_selects_its_preset_and_its_port_does_not(tmp_path: Path) -> None:
    known = from_file(tmp_path, '[providers.sglang]\nbase_url = "http://gpu1:3000/v1"\n')["sglang"]
    assert known.capabilities is PRESETS["sglang"].capabilities
    at_vllms_port = endpoints(Settings(), {}, base_url="http://127.0.0.1:8000/v1")["openai"]
    assert at_vllms_port.capabilities == Capabilities()
    assert not endpoints(Settings(), {}, base_url="http://127.0.0.1:30000/v1")[
        "openai"
    ].capabilities.telemetry_flags


def test_a_hosted_provider_at_another_url_has_unknown_capabilities() -> None:
    tables = {"providers": {"fireworks": {"base_url": "http://gateway/v1"}}}
    known = endpoints(Settings.model_validate(tables), {})["fireworks"]
    assert known.capabilities == Capabilities()
    assert known.price_provider == ANY_VENDOR


@pytest.mark.parametrize(
    ("address", "base_url"),
    [
        ("https://res.openai.azure.com", "https://res.openai.azure.com/openai/v1"),
        ("https://res.openai.azure.com/", "https://res.openai.azure.com/openai/v1"),
        ("https://res.openai.azure.com/openai/v1/", "https://res.openai.azure.com/openai/v1"),
        ("nonsense", PRESETS["azure"].base_url),
    ],
)
def test_the_base_url_of_azure_is_read_from_the_environment(address: str, base_url: str) -> None:
    known = endpoints(Settings(), {"AZURE_OPENAI_ENDPOINT": address, "AZURE_OPENAI_API_KEY": "k"})["azure"]
    assert (known.base_url, known.key) == (base_url, SecretStr("k"))
    assert known.price_provider == "azure"


def test_the_azure_client_has_the_capabilities_of_the_azure_preset() -> None:
    client = AzureOpenAI(api_key="k", azure_endpoint="https://res.openai.azure.com", api_version="1")
    assert endpoint_of(client, "openai").capabilities == PRESETS["azure"].capabilities


def test_probe_results_are_stored_without_the_query_of_the_url(tmp_path: Path) -> None:
    env = {"SPECCLIENT_PROBES": str(tmp_path / "probes.json")}
    found = ProbeRecord(at=datetime.now(UTC), outcomes={}, capabilities={"prediction": True})
    file = write_probe(env, "http://h/v1/?key=sk-secret", "m", found)
    assert file is not None
    assert "sk-secret" not in file.read_text()
    url = "http://h/v1?key=sk-other"
    known = endpoints(Settings.model_validate({"providers": {"mine": {"base_url": url}}}), env)["mine"]
    assert known.capabilities_of("m").prediction is True


def test_concurrent_probe_results_are_all_stored(tmp_path: Path) -> None:
    env = {"SPECCLIENT_PROBES": str(tmp_path / "probes.json")}
    found = ProbeRecord(at=datetime.now(UTC), outcomes={}, capabilities={"prediction": True})
    models = [f"m{number}" for number in range(64)]
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda model: write_probe(env, "http://h/v1", model, found), models))
    assert set(read_probes(env)["http://h/v1"]) == set(models)


@pytest.mark.parametrize("url", ["http://h/v1?key=sk-secret", "h/v1?key=sk-secret", "ftp://h?key=sk-secret"])
def test_a_key_in_a_url_is_not_shown(url: str) -> None:
    table = {"providers": {"mine": {"base_url": url, "metrics": url}}}
    assert "sk-secret" not in repr(Settings.model_validate(table))
    try:
        mine = Provider(name="mine", base_url=url, metrics=url)
        shown = repr(mine) + repr(mine.endpoint(None, {})) + mine.endpoint(None, {}).address
        assert "http://h/v1?…" in shown
    except ConfigurationError as error:
        shown = str(error)
    assert "sk-secret" not in shown


# --- invalid providers


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('dialect = "klingon"', "dialect is 'klingon'; it must be one of openai, anthropic, gemini"),
        ('key_header = "x key"', "key_header is 'x key'; it must be a header's name"),
        ('base_url = "gpu:8000/v1"', "base_url 'gpu:8000/v1' has no scheme; write 'https://gpu:8000/v1'"),
        (
            "capabilities = { predction = true }",
            "providers.mine.capabilities.predction.*known are prediction,",
        ),
        ('capabilities = { verification = "foo" }', "capabilities.verification.* is 'foo'.*prompt_logprobs"),
        ('capabilities = { prediction = "maybe" }', "capabilities.prediction is 'maybe'.*boolean"),
        ('capabilities = { telemetry = "vllm" }', "capabilities.telemetry is 'vllm'"),
        ("dialect = 3", "providers.mine.dialect is 3"),
        ("drop_params = true", "unknown setting 'providers.mine.drop_params'"),
    ],
)
def test_the_error_of_an_invalid_table_names_file_key_value_and_allowed_values(
    tmp_path: Path, line: str, message: str
) -> None:
    rest = "" if line.startswith("base_url") else 'base_url = "http://h"\n'
    with pytest.raises(ConfigurationError, match=message) as caught:
        from_file(tmp_path, f"[providers.mine]\n{rest}{line}\n")
    assert str(tmp_path / "specclient.toml") in str(caught.value)
    assert "mine" in str(caught.value)


def test_the_error_of_an_invalid_base_url_does_not_show_its_value(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        from_file(tmp_path, '[providers.mine]\nbase_url = ["sk-secret"]\n')
    assert "sk-secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"name": ""}, "named ''"),
        ({"name": "a/b"}, "named 'a/b'"),
        ({"name": "x", "dialect": "klingon"}, "'x': dialect is 'klingon'; it must be one of openai"),
        ({"name": "x", "base_url": "h"}, "'x': base_url 'h' has no scheme"),
        ({"name": "x", "key_header": ""}, "'x': key_header is ''"),
        ({"name": "x", "template": {"m": ""}}, r"'x': template is \{'m': ''\}; it must be a folder"),
    ],
)
def test_an_invalid_provider_in_code_raises(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Provider(**fields)


def test_a_provider_without_a_base_url_or_of_a_wrong_type_raises() -> None:
    with pytest.raises(ConfigurationError, match=r"\[providers.mine\] has no base_url"):
        OpenAI(providers=[Provider(name="mine")])
    with pytest.raises(ConfigurationError, match="providers contains a dict"):
        OpenAI(providers=[{"name": "mine"}])  # type: ignore[list-item]
    assert endpoint_of(OpenAI(providers=Provider(name="x", base_url="http://h")), "x")  # type: ignore[arg-type]


# --- drop_params


@pytest.mark.parametrize(
    ("setting", "option", "call", "dropped"),
    [
        (False, None, None, False),
        (True, None, None, True),
        (True, False, None, False),
        (False, True, None, True),
        (False, True, False, False),
        (False, None, True, True),
    ],
)
def test_drop_params_of_the_call_overrides_the_client_which_overrides_the_file(
    openai_server: OpenAIServer, setting: bool, option: bool | None, call: bool | None, dropped: bool
) -> None:
    tables = {"providers": {"vllm": {"base_url": openai_server.base_url}}, "drop_params": setting}
    with OpenAI(config=Settings.model_validate(tables), drop_params=option) as client:

        def ask() -> None:
            client.chat.completions.create(
                model="vllm/m", messages=ASK, prediction=PREDICTION, drop_params=call
            )

        if dropped:
            ask()
            assert "prediction" not in openai_server.requests[0].json
        else:
            with pytest.raises(
                UnsupportedParameterError, match="'vllm' does not take 'prediction'"
            ) as caught:
                ask()
            assert caught.value.param == "prediction"
            assert not openai_server.requests
        if call is None:
            assert (
                endpoint_of(client.with_options(drop_params=not dropped), "vllm").drop_params is not dropped
            )


# --- a model in extra_body


@pytest.mark.parametrize("stream", [False, True])
def test_a_model_in_extra_body_is_used_and_priced(openai_server: OpenAIServer, stream: bool) -> None:
    settings = Settings.model_validate(
        {
            "providers": {"mine": {"base_url": openai_server.base_url}},
            "prices": {"mine/m-small": PriceSettings(input=Decimal(1), output=Decimal(4))},
        }
    )
    with OpenAI(config=settings) as client:
        answer = client.chat.completions.create(
            model="mine/m-large", messages=ASK, stream=stream, extra_body={"model": "mine/m-small", "x": 1}
        )
        if stream:
            list(answer)
        row = client.ledger.rows()[0]
    sent = openai_server.requests[0].json
    assert (sent["model"], sent["x"]) == ("m-small", 1)
    assert row.route == "mine/m-small"
    assert answer.meta.cost.total is not None
    assert answer.meta.cost.total > 0


@pytest.mark.parametrize("model", [None, "", 3])
def test_an_invalid_model_in_extra_body_raises(openai_server: OpenAIServer, model: Any) -> None:
    with (
        OpenAI(base_url=openai_server.base_url, ledger="off") as client,
        pytest.raises(TypeError, match=f"model is {model!r}"),
    ):
        client.chat.completions.create(model="m", messages=ASK, extra_body={"model": model})
