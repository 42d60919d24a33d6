"""The presets of providers: every one encodes requests, and its fields agree with the reference tables."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, get_args

import pytest
from pydantic import SecretStr

from specclient import BadRequestError, OpenAI, UnsupportedParameterError
from specclient.config import Settings
from specclient.errors import ConfigurationError
from specclient.prices import vertex
from specclient.providers import DIALECTS, PRESETS, Preset, dialect_of, endpoint_of_model, preset
from specclient.providers.endpoint import Endpoint
from specclient.providers.openai.quirks import Quirks
from specclient.providers.presets.preset import LimitFormat
from specclient.providers.presets.registry import bare_endpoints, preset_for_url
from specclient.providers.vertex.endpoint import placed_endpoint
from specclient.telemetry import formats
from specclient.types import inference_methods
from specclient.types.capabilities import Capabilities, Prefill, StreamedUsage, Verification
from specclient.types.request import PerCallOptions, Request

HOSTED = {row.name for row in PRESETS.values() if row.key_required}
CHAT = {"messages": [{"role": "user", "content": "hi"}]}
PREDICTION = {"type": "content", "content": "one two"}

#: The first table of the reference: title, preset, URL of a chat, header of the key.
TABLE = {
    "OpenAI": ("openai", "https://api.openai.com/v1/chat/completions", "authorization"),
    "Azure OpenAI": ("azure", "https://res.openai.azure.com/openai/v1/chat/completions", "api-key"),
    "Anthropic": ("anthropic", "https://api.anthropic.com/v1/messages", "x-api-key"),
    "Gemini": (
        "gemini",
        "https://generativelanguage.googleapis.com/v1beta/models/m:generateContent",
        "x-goog-api-key",
    ),
    "Vertex AI": (
        "vertex",
        "https://aiplatform.googleapis.com/v1beta1/publishers/google/models/m:generateContent",
        "x-goog-api-key",
    ),
    "Amazon Bedrock": (
        "bedrock",
        "https://bedrock-runtime.us-east-1.amazonaws.com/model/m/converse",
        "authorization",
    ),
    "Mistral": ("mistral", "https://api.mistral.ai/v1/chat/completions", "authorization"),
    "Fireworks": ("fireworks", "https://api.fireworks.ai/inference/v1/chat/completions", "authorization"),
    "Cerebras": ("cerebras", "https://api.cerebras.ai/v1/chat/completions", "authorization"),
    "Together": ("together", "https://api-inference.together.ai/v1/chat/completions", "authorization"),
    "Groq": ("groq", "https://api.groq.com/openai/v1/chat/completions", "authorization"),
    "SambaNova": ("sambanova", "https://api.sambanova.ai/v1/chat/completions", "authorization"),
    "DeepSeek": ("deepseek", "https://api.deepseek.com/chat/completions", "authorization"),
    "xAI": ("xai", "https://api.x.ai/v1/chat/completions", "authorization"),
    "OpenRouter": ("openrouter", "https://openrouter.ai/api/v1/chat/completions", "authorization"),
    "HolySheep AI": ("holysheep", "https://api.holysheep.ai/v1/chat/completions", "authorization"),
    "Baseten": ("baseten", "https://mine.test/v1/chat/completions", "authorization"),
    "Perplexity": ("perplexity", "https://api.perplexity.ai/chat/completions", "authorization"),
    "specclient serve": ("specclient", "http://127.0.0.1:8400/v1/chat/completions", "authorization"),
    "vLLM": ("vllm", "http://127.0.0.1:8000/v1/chat/completions", "authorization"),
    "SGLang": ("sglang", "http://127.0.0.1:30000/v1/chat/completions", "authorization"),
    "TensorRT-LLM": ("tensorrt-llm", "http://127.0.0.1:8000/v1/chat/completions", "authorization"),
    "Triton": ("triton", "http://127.0.0.1:9000/v1/chat/completions", "authorization"),
    "NVIDIA NIM": ("nim", "http://127.0.0.1:8000/v1/chat/completions", "authorization"),
    "llama.cpp": ("llamacpp", "http://127.0.0.1:8080/v1/chat/completions", "authorization"),
    "Hugging Face TGI": ("tgi", "http://127.0.0.1:3000/v1/chat/completions", "authorization"),
    "LM Studio": ("lmstudio", "http://127.0.0.1:1234/v1/chat/completions", "authorization"),
    "mlx-lm": ("mlx", "http://127.0.0.1:8080/v1/chat/completions", "authorization"),
    "Ollama": ("ollama", "http://127.0.0.1:11434/v1/chat/completions", "authorization"),
    "TabbyAPI": ("tabbyapi", "http://127.0.0.1:5000/v1/chat/completions", "authorization"),
    "transformers serve": ("transformers", "http://127.0.0.1:8000/v1/chat/completions", "authorization"),
}

#: The capabilities in the same table: prediction, telemetry, prefill, verification; None for `unverified`.
REFERENCE: dict[str, tuple[Any, Any, Any, Any]] = {
    "openai": (True, ("openai",), False, False),
    "azure": (True, ("openai",), None, False),
    "anthropic": (False, (), "assistant", False),
    "bedrock": (False, (), None, False),
    "gemini": (False, (), None, False),
    "vertex": (False, (), None, False),
    "mistral": (True, (), "prefix", False),
    "fireworks": (True, ("fireworks",), "completions", "echo_last"),
    "cerebras": (True, ("openai",), None, None),
    "together": (False, (), "completions", "echo"),
    "groq": (False, (), None, False),
    "sambanova": (False, ("sambanova",), None, None),
    "deepseek": (False, (), "prefix", False),
    "xai": (False, (), None, False),
    "openrouter": (True, ("openai",), "assistant", False),
    "holysheep": (None, None, None, None),
    "baseten": (None, None, None, None),
    "perplexity": (None, None, None, None),
    "specclient": (True, ("specclient", "openai"), False, "prompt_logprobs"),
    "vllm": (False, ("vllm",), "continue_final_message", "prompt_logprobs"),
    "sglang": (False, ("sglang",), "continue_final_message", "sglang"),
    "tensorrt-llm": (False, ("tensorrt",), "completions", False),
    "triton": (False, ("triton",), None, False),
    "nim": (False, ("vllm", "sglang"), None, None),
    "llamacpp": (False, ("llamacpp",), "assistant", False),
    "tgi": (False, (), "completions", "tgi"),
    "lmstudio": (False, ("lmstudio",), None, False),
    "mlx": (False, (), False, False),
    "ollama": (False, (), None, False),
    "tabbyapi": (False, (), "continue_final_message", False),
    "transformers": (False, (), False, False),
}


def endpoint_of(name: str) -> Endpoint:
    """Return the endpoint of a preset, with a key, and with a base URL where the preset has none."""
    row = preset(name)
    url = {
        "azure": "https://res.openai.azure.com/openai/v1",
        "baseten": "https://mine.test/v1",
        "bedrock": "https://bedrock-runtime.us-east-1.amazonaws.com",
    }.get(name)
    endpoint = row.endpoint(key=SecretStr("k"), base_url=url)
    if row.dialect == "vertex":
        return endpoint_of_model(placed_endpoint(endpoint, {}), "m")
    return endpoint


def body_of(name: str, params: Any = CHAT, method: Any = inference_methods.CHAT, **fields: Any) -> Any:
    endpoint = endpoint_of(name)
    wire = dialect_of(endpoint).encode(Request(method, f"{name}/m", params, **fields), endpoint, "m")
    return json.loads(wire.content or b"null")


def test_the_reference_tables_have_every_preset() -> None:
    assert {name for name, _, _ in TABLE.values()} == set(PRESETS) == set(REFERENCE)
    assert {row.title for row in PRESETS.values()} == set(TABLE)


@pytest.mark.parametrize("title", TABLE)
def test_every_preset_encodes_a_chat(title: str) -> None:
    name, url, header = TABLE[title]
    row, endpoint = preset(name), endpoint_of(name)
    assert row.title == title
    wire = dialect_of(endpoint).encode(Request(inference_methods.CHAT, "any", CHAT), endpoint, "m")
    assert wire.url == url
    assert wire.headers[header] == ("Bearer k" if header == "authorization" else "k")
    assert header == "authorization" or "authorization" not in wire.headers
    assert wire.deployment == f"{name}/m"
    assert row.dialect in DIALECTS


@pytest.mark.parametrize("name", REFERENCE)
def test_every_preset_has_the_capabilities_of_the_reference(name: str) -> None:
    known = preset(name).capabilities
    assert (known.prediction, known.telemetry, known.prefill, known.verification) == REFERENCE[name]


@pytest.mark.parametrize("row", PRESETS.values(), ids=lambda row: row.name)
def test_every_capability_has_an_allowed_value(row: Preset) -> None:
    known = row.capabilities
    assert set(known.telemetry or ()) <= set(formats.TELEMETRY_FORMATS)
    assert known.prefill in (None, False, *get_args(Prefill))
    assert known.verification in (None, False, *get_args(Verification))
    assert known.streamed_usage in (None, False, *get_args(StreamedUsage))
    assert row.limits in (None, *get_args(LimitFormat))
    assert known.prediction is not False or known.rejected_billed is None
    assert known.prediction or not (known.prediction_models or known.prediction_conflicts)


def test_hosted_presets_require_a_key_and_https_and_local_ones_do_not() -> None:
    for row in PRESETS.values():
        if row.name in HOSTED:
            assert row.base_url.startswith("https://")
            assert row.key_env
        else:
            assert row.base_url.startswith("http://127.0.0.1:")
            dialect_of(row.endpoint()).encode_models(row.endpoint())


def test_price_providers_exist_in_the_catalogue() -> None:
    snapshot = pytest.importorskip("genai_prices.data_snapshot").get_snapshot()
    known = {provider.id for provider in snapshot.providers} | vertex.IDS
    assert {row.price_provider for row in PRESETS.values() if row.price_provider} <= known


# --- refused parameters and parameters with other names


def test_the_error_for_prediction_names_the_providers_that_support_it() -> None:
    with pytest.raises(UnsupportedParameterError) as caught:
        body_of("groq", {**CHAT, "prediction": PREDICTION})
    words = str(caught.value).replace(",", " ").split()
    assert "and specclient do" in str(caught.value)
    for name, row in PRESETS.items():
        assert name == "groq" or (name in words) == (row.capabilities.prediction is True)


@pytest.mark.parametrize(
    "name", [n for n, known in REFERENCE.items() if known[0] is False and preset(n).dialect == "openai"]
)
def test_a_prediction_raises_or_is_dropped_if_unsupported(name: str) -> None:
    params = {**CHAT, "prediction": PREDICTION}
    with pytest.raises(UnsupportedParameterError, match=f"'{name}' does not take 'prediction'"):
        body_of(name, params)
    dropped = body_of(name, params, options=PerCallOptions(drop_params=True))
    assert "prediction" not in dropped
    assert dropped["messages"] == CHAT["messages"]


@pytest.mark.parametrize("name", [n for n, known in REFERENCE.items() if known[0] is not False])
def test_a_prediction_is_sent_if_supported_or_unknown(name: str) -> None:
    assert body_of(name, {**CHAT, "prediction": PREDICTION})["prediction"] == PREDICTION


def test_telemetry_flags_are_sent_only_to_endpoints_that_support_them() -> None:
    flags = {"return_spec_tokens_details", "perf_metrics_in_response", "specclient"}
    sent = {name: flags & set(body_of(name)) for name in REFERENCE}
    assert {name: found for name, found in sent.items() if found} == {
        "sglang": {"return_spec_tokens_details"},
        "fireworks": {"perf_metrics_in_response"},
        "specclient": {"specclient"},
    }
    own = body_of("specclient", options=PerCallOptions(body={"specclient": {"tags": {"a": "b"}}}))
    assert own["specclient"] == {"meta": True, "tags": {"a": "b"}}
    assert (
        body_of("sglang", {"prompt": "x"}, inference_methods.COMPLETION)["return_spec_tokens_details"] is True
    )
    assert set(body_of("sglang", {"input": "x"}, inference_methods.EMBEDDING)) == {"model", "input"}
    off = PerCallOptions(body={"perf_metrics_in_response": False})
    assert body_of("fireworks", options=off)["perf_metrics_in_response"] is False


def test_mistrals_parameter_names() -> None:
    parts = [{"type": "text", "text": "one "}, {"type": "text", "text": "two"}]
    sent = body_of(
        "mistral",
        {
            **CHAT,
            "max_completion_tokens": 5,
            "seed": 0,
            "prediction": {"type": "content", "content": parts},
            "stream_options": {"include_usage": True},
        },
        stream=True,
    )
    assert sent == {
        "model": "m",
        **CHAT,
        "max_tokens": 5,
        "random_seed": 0,
        "prediction": {"type": "content", "content": "one two"},
        "stream": True,
    }
    for two in ({"max_tokens": 3, "max_completion_tokens": 5}, {"max_completion_tokens": 5, "max_tokens": 3}):
        with pytest.raises(BadRequestError, match=r"max_\w+ is \d and max_\w+ is \d, .* pass one of them"):
            body_of("mistral", {**CHAT, **two})
    both = body_of("mistral", {**CHAT, "max_tokens": 3, "max_completion_tokens": 3})
    assert both["max_tokens"] == 3
    own = body_of("mistral", {**CHAT, "seed": 1}, options=PerCallOptions(body={"random_seed": 2}))
    assert own["random_seed"] == 2, "extra_body overrides the renamed parameter"
    assert body_of("mistral", options=PerCallOptions(body={"seed": 3}))["seed"] == 3, (
        "extra_body is unchanged"
    )
    with pytest.raises(UnsupportedParameterError, match="'mistral' does not take 'store'"):
        body_of("mistral", {**CHAT, "store": True})
    assert body_of("mistral", {**CHAT, "store": True}, options=PerCallOptions(drop_params=True)) == {
        "model": "m",
        **CHAT,
    }
    obfuscated = {**CHAT, "stream_options": {"include_obfuscation": False}}
    for stream in (False, True):
        with pytest.raises(UnsupportedParameterError, match="'mistral' does not take 'stream_options'"):
            body_of("mistral", obfuscated, stream=stream)
        dropped = body_of("mistral", obfuscated, stream=stream, options=PerCallOptions(drop_params=True))
        assert "stream_options" not in dropped
    image = {"type": "content", "content": [{"type": "image_url"}]}
    assert body_of("mistral", {**CHAT, "prediction": image})["prediction"] == image, (
        "left for Mistral to refuse"
    )


def test_deepseek_prefixes_are_sent_to_the_beta_url() -> None:
    last = {"role": "assistant", "content": "Once", "prefix": True}
    endpoint = endpoint_of("deepseek")

    def url(messages: list[Any], at: Endpoint = endpoint) -> str:
        return (
            dialect_of(at).encode(Request(inference_methods.CHAT, "x", {"messages": messages}), at, "m").url
        )

    assert url([*CHAT["messages"], last]) == "https://api.deepseek.com/beta/chat/completions"
    assert url([last, *CHAT["messages"]]) == "https://api.deepseek.com/chat/completions"
    assert url([]) == "https://api.deepseek.com/chat/completions"
    beta = preset("deepseek").endpoint(key=SecretStr("k"), base_url="https://api.deepseek.com/beta")
    assert url([last], beta) == "https://api.deepseek.com/beta/chat/completions"


def test_openrouter_requires_support_for_a_prediction() -> None:
    assert "provider" not in body_of("openrouter")
    params = {**CHAT, "prediction": PREDICTION}
    assert body_of("openrouter", params)["provider"] == {"require_parameters": True}
    own = PerCallOptions(body={"provider": {"order": ["OpenAI"], "require_parameters": False}})
    assert body_of("openrouter", params, options=own)["provider"] == {
        "require_parameters": False,
        "order": ["OpenAI"],
    }


# --- base URLs


@pytest.mark.parametrize(
    ("name", "way_out"),
    [
        ("azure", "set AZURE_OPENAI_ENDPOINT, or give base_url under"),
        ("baseten", "no address: give base_url under"),
    ],
)
def test_a_preset_without_a_base_url_raises_and_names_the_setting(name: str, way_out: str) -> None:
    with OpenAI(config=Settings(), ledger="off") as client:
        client.pipeline.destinations.get(name)
        with pytest.raises(ConfigurationError) as caught:
            client.chat.completions.create(model=f"{name}/m", messages=CHAT["messages"])
    assert f"provider {name!r} has no address" in str(caught.value)
    assert f"{way_out} [providers.{name}]" in str(caught.value)


def test_a_preset_is_found_by_its_host_and_not_by_its_port() -> None:
    assert preset_for_url("https://api.groq.com/openai/v1/") is preset("groq")
    assert preset_for_url("https://api.together.xyz/v1") is preset("together")
    assert preset_for_url("https://generativelanguage.googleapis.com/v1beta/openai/") is preset("gemini")
    assert preset_for_url("http://127.0.0.1:8000/v1") is None
    assert preset_for_url(preset("azure").base_url) is None


# --- rows


def test_presets_are_made_once_and_are_immutable() -> None:
    assert bare_endpoints() is bare_endpoints()
    assert all(endpoint.key is None for endpoint in bare_endpoints().values())
    with pytest.raises(TypeError):
        PRESETS["x"] = preset("openai")  # type: ignore[index]


def test_key_variables_are_read_in_order() -> None:
    row = preset("gemini")
    assert row.key_in({"GOOGLE_API_KEY": "b", "GEMINI_API_KEY": "a"}) == SecretStr("a")
    assert row.key_in({"GOOGLE_API_KEY": "b", "GEMINI_API_KEY": ""}) == SecretStr("b")
    assert row.key_in({}) is None


def test_the_error_of_a_missing_key_names_its_variables() -> None:
    endpoint = preset("gemini").endpoint()
    with pytest.raises(ConfigurationError, match="set GEMINI_API_KEY or GOOGLE_API_KEY"):
        dialect_of(endpoint).encode(Request(inference_methods.CHAT, "gemini/m", CHAT), endpoint, "m")


def test_the_error_of_an_unknown_preset_lists_the_known_ones() -> None:
    with pytest.raises(ConfigurationError, match="'opneai'; known are openai, azure, anthropic"):
        preset("opneai")


def test_a_custom_preset_with_an_unknown_dialect_raises() -> None:
    with pytest.raises(ConfigurationError, match="'klingon'; known are openai"):
        Preset("x", "http://h", dialect="klingon").endpoint()


def test_a_model_not_listed_by_the_vendor_supports_predictions_only_if_a_probe_found_so() -> None:
    endpoint = preset("openai").endpoint()
    assert endpoint.capabilities_of("gpt-4.1-mini").prediction is True
    assert endpoint.capabilities_of("gpt-5").prediction is False
    probed = replace(endpoint, probed={"gpt-5": Capabilities(prediction=True)}).capabilities_of("gpt-5")
    assert (probed.prediction, probed.prediction_models) == (True, ())
    refused = replace(endpoint, probed={"gpt-5": Capabilities(prediction=False)})
    assert refused.capabilities_of("gpt-5").prediction is False


def test_probe_results_replace_unknown_capabilities_only() -> None:
    found = Capabilities(prediction=True, prefill="assistant", verification="echo")
    endpoint = Endpoint(
        name="x",
        base_url="http://h",
        capabilities=Capabilities(prefill=False, verification="tgi"),
        probed={"m": found},
    )
    assert endpoint.capabilities_of("other") is endpoint.capabilities
    known = endpoint.capabilities_of("m")
    assert (known.prediction, known.prefill, known.verification) == (True, False, "tgi")


@pytest.mark.parametrize(
    ("conflicting", "way_out"),
    [
        ({"n": 2}, "leave one of them out"),
        ({"tools": [{"type": "function"}]}, "leave one of them out"),
        ({"presence_penalty": 0.5}, "leave one of them out"),
        ({"max_completion_tokens": 9}, "pass max_tokens in its place"),
    ],
)
def test_a_prediction_with_a_conflicting_parameter_raises(conflicting: dict[str, Any], way_out: str) -> None:
    endpoint = preset("openai").endpoint(key=SecretStr("k"))
    predicted = {"type": "content", "content": "x"}
    params = {"messages": [], "prediction": predicted, **conflicting}
    (name,) = conflicting
    with pytest.raises(UnsupportedParameterError, match=f"'prediction' together with '{name}'") as caught:
        dialect_of(endpoint).encode(Request(inference_methods.CHAT, "openai/m", params), endpoint, "m")
    assert way_out in str(caught.value)
    assert caught.value.param == name
    dropping = replace(endpoint, drop_params=True)
    sent = dialect_of(dropping).encode(Request(inference_methods.CHAT, "openai/m", params), dropping, "m")
    assert json.loads(sent.content) == {"model": "m", "messages": [], **conflicting}


def test_conflicts_are_checked_by_the_names_that_are_sent() -> None:
    known = Capabilities(prediction=True, prediction_conflicts=("max_completion_tokens", "num"))
    quirks = Quirks(renamed={"max_completion_tokens": "max_tokens", "n": "num"})
    endpoint = Preset("x", "http://h", capabilities=known, quirks=quirks).endpoint()
    params = {**CHAT, "prediction": PREDICTION, "max_completion_tokens": 5}

    def sent(params: Any, own: Any = None) -> Any:
        options = PerCallOptions(body=own or {})
        request = Request(inference_methods.CHAT, "x/m", params, options=options)
        return json.loads(dialect_of(endpoint).encode(request, endpoint, "m").content or b"null")

    body = {"model": "m", **CHAT, "prediction": PREDICTION, "max_tokens": 5}
    assert sent(params) == body
    assert sent({**params, "n": 1}) == {**body, "num": 1}
    with pytest.raises(UnsupportedParameterError, match="together with 'n'") as caught:
        sent({**params, "n": 2})
    assert caught.value.param == "n"
    with pytest.raises(UnsupportedParameterError, match="together with 'max_completion_tokens'"):
        sent(params, {"max_completion_tokens": 5})  # extra_body is sent unchanged


def test_a_prediction_is_sent_with_default_values_and_to_an_unknown_server() -> None:
    params = {"messages": [], "prediction": {"type": "content", "content": "x"}, "n": 1, "tools": []}
    known = preset("openai").endpoint(key=SecretStr("k"))
    unknown = Endpoint(name="mine", base_url="http://h/v1")
    for endpoint, more in ((known, {}), (unknown, {"n": 2, "tools": [{"type": "function"}]})):
        request = Request(inference_methods.CHAT, "x/m", {**params, **more})
        sent = dialect_of(endpoint).encode(request, endpoint, "m")
        assert json.loads(sent.content) == {"model": "m", **params, **more}
