"""Presets of the hosted providers: URLs, keys and capabilities, from the vendors' documentation and SDKs.

Base URLs and keys: each vendor's API reference. ``prediction``: OpenAI and Azure "Predicted Outputs"; Mistral
"Predicted outputs"; Fireworks "Using Predicted Outputs"; Cerebras "Predicted Outputs"; OpenRouter's request
schema. A capability that no page or SDK documents is unknown; if an SDK has no field for it, it is False.
"""

from __future__ import annotations

from dataclasses import replace

from specclient.providers.openai.quirks import Quirks
from specclient.providers.presets.preset import Preset
from specclient.types.capabilities import Capabilities

#: Parameters that OpenAI rejects together with ``prediction`` ("Predicted Outputs"; Azure lists the same).
OPENAI_CONFLICTS = (
    "n",
    "logprobs",
    "presence_penalty",
    "frequency_penalty",
    "audio",
    "modalities",
    "max_completion_tokens",
    "tools",
)

_OPENAI = Capabilities(
    prediction=True,
    prediction_models=("gpt-4o", "gpt-4.1"),
    prediction_conflicts=OPENAI_CONFLICTS,
    rejected_billed=True,
    telemetry=("openai",),
    prefill=False,  # an assistant message counts as a finished turn
    verification=False,
    streamed_usage="asked",
)
#: An endpoint without a field for a prediction, and without telemetry of speculation.
_SILENT = Capabilities(prediction=False, telemetry=(), streamed_usage="asked")

#: OpenAI fields that Mistral's chats reject with status 422, as they do any unknown field.
_NOT_AT_MISTRAL = (
    *("audio", "function_call", "functions", "logit_bias", "logprobs", "modalities", "safety_identifier"),
    *("service_tier", "store", "stream_options", "top_logprobs", "user", "verbosity"),
    "web_search_options",
)

_ROWS = (
    Preset(
        "openai",
        "https://api.openai.com/v1",
        ("OPENAI_API_KEY",),
        "openai",
        _OPENAI,
        limits="openai",
        title="OpenAI",
        note="prediction: chat with gpt-4o and gpt-4.1 models",
    ),
    Preset(
        "azure",
        "https://{resource}.openai.azure.com/openai/v1",
        ("AZURE_OPENAI_API_KEY",),
        "azure",
        replace(_OPENAI, prediction_models=(), prefill=None),  # users choose the names of their deployments
        key_header="api-key",
        base_url_env="AZURE_OPENAI_ENDPOINT",
        base_url_path="/openai/v1",
        limits="azure",
        title="Azure OpenAI",
        note="prediction is a preview; the address is read from AZURE_OPENAI_ENDPOINT",
    ),
    Preset(
        "anthropic",
        "https://api.anthropic.com/v1",
        ("ANTHROPIC_API_KEY",),
        "anthropic",
        replace(_SILENT, prefill="assistant", verification=False, streamed_usage="unasked"),
        dialect="anthropic",
        key_header="x-api-key",
        limits="anthropic",
        title="Anthropic",
        note="prefill: older models only; newer models answer 400",
    ),
    Preset(
        "gemini",
        "https://generativelanguage.googleapis.com/v1beta",
        ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        "google",
        replace(_SILENT, verification=False, streamed_usage="unasked"),
        dialect="gemini",
        key_header="x-goog-api-key",
        other_urls=("https://generativelanguage.googleapis.com/v1beta/openai",),
        limits="google",
        title="Gemini",
    ),
    Preset(
        "vertex",
        "https://{location}-aiplatform.googleapis.com",
        ("VERTEX_API_KEY",),
        "vertex",
        replace(_SILENT, verification=False, streamed_usage="unasked"),
        dialect="vertex",
        key_header="x-goog-api-key",
        limits="google",
        title="Vertex AI",
        note=(
            "Gemini and Anthropic's models, each in its vendor's dialect, by Google credentials, or an API "
            "key in express mode; prefill: Anthropic's older models. Speculation of a model that you deploy "
            "is set then (SpeculativeDecodingSpec) and has no field in a request"
        ),
    ),
    Preset(
        "bedrock",
        "https://bedrock-runtime.{location}.amazonaws.com",
        ("AWS_BEARER_TOKEN_BEDROCK",),
        "aws",
        replace(_SILENT, verification=False, streamed_usage="unasked"),
        dialect="bedrock",
        base_url_env="AWS_REGION",
        limits="none",
        title="Amazon Bedrock",
        note="by a Bedrock API key, or by AWS credentials (extra bedrock) in the region of AWS_REGION or the "
        "profile",
    ),
    Preset(
        "mistral",
        "https://api.mistral.ai/v1",
        ("MISTRAL_API_KEY",),
        "mistral",
        Capabilities(
            prediction=True,
            prediction_models=("codestral-2501", "mistral-large-2411"),
            prediction_conflicts=("n",),
            rejected_billed=False,
            telemetry=(),
            prefill="prefix",
            verification=False,
            streamed_usage="unasked",  # in the last chunk
            strict=True,  # unknown fields are rejected: 422, extra_forbidden
        ),
        quirks=Quirks(
            renamed={"max_completion_tokens": "max_tokens", "seed": "random_seed"},
            refused=_NOT_AT_MISTRAL,
            text_prediction=True,
        ),
        limits="mistral",
        title="Mistral",
        note="prediction: codestral-2501 and mistral-large-2411; the response does not report its use",
    ),
    Preset(
        "deepseek",
        "https://api.deepseek.com",
        ("DEEPSEEK_API_KEY",),
        "deepseek",
        replace(_SILENT, prefill="prefix", verification=False),
        quirks=Quirks(prefix_path="/beta"),
        other_urls=("https://api.deepseek.com/v1", "https://api.deepseek.com/beta"),
        limits="none",
        title="DeepSeek",
        note="requests with a prefix: true message are sent to /beta",
    ),
    Preset(
        "fireworks",
        "https://api.fireworks.ai/inference/v1",
        ("FIREWORKS_API_KEY",),
        "fireworks",
        Capabilities(
            prediction=True,
            rejected_billed=False,
            speculation=True,
            telemetry=("fireworks",),
            telemetry_flags={"perf_metrics_in_response": True},
            prefill="completions",
            verification="echo_last",
            streamed_usage="asked",
        ),
        limits="fireworks",
        title="Fireworks",
    ),
    Preset(
        "together",
        "https://api-inference.together.ai/v1",
        ("TOGETHER_API_KEY",),
        "together",
        replace(_SILENT, prefill="completions", verification="echo"),
        other_urls=("https://api.together.xyz/v1", "https://api.together.ai/v1"),
        limits="together",
        title="Together",
        note="a speculator is chosen when a model is deployed",
    ),
    Preset(
        "groq",
        "https://api.groq.com/openai/v1",
        ("GROQ_API_KEY",),
        "groq",
        replace(_SILENT, verification=False, streamed_usage="unasked"),
        quirks=Quirks(
            refused=("logprobs", "top_logprobs", "logit_bias", "n")
        ),  # rejected with status 400 ("OpenAI Compatibility")
        limits="groq",
        title="Groq",
    ),
    Preset(
        "cerebras",
        "https://api.cerebras.ai/v1",
        ("CEREBRAS_API_KEY",),
        "cerebras",
        Capabilities(
            prediction=True,
            prediction_models=("gpt-oss-120b", "zai-glm-4.7"),
            telemetry=("openai",),
            streamed_usage="asked",
        ),
        limits="cerebras",
        title="Cerebras",
        note="prediction: gpt-oss-120b and zai-glm-4.7 (preview)",
    ),
    Preset(
        "sambanova",
        "https://api.sambanova.ai/v1",
        ("SAMBANOVA_API_KEY",),
        None,
        replace(_SILENT, telemetry=("sambanova",), streamed_usage="unasked"),
        title="SambaNova",
    ),
    Preset(
        "xai",
        "https://api.x.ai/v1",
        ("XAI_API_KEY",),
        "x-ai",
        replace(_SILENT, verification=False),
        title="xAI",
    ),
    Preset(
        "openrouter",
        "https://openrouter.ai/api/v1",
        ("OPENROUTER_API_KEY",),
        "openrouter",
        Capabilities(
            prediction=True,
            prediction_models=("openai/gpt-4o", "openai/gpt-4.1"),
            telemetry=("openai",),
            prefill="assistant",
            verification=False,
            streamed_usage="asked",
        ),
        # Otherwise OpenRouter may choose a provider that silently ignores the parameter.
        quirks=Quirks(beside_prediction={"provider": {"require_parameters": True}}),
        limits="openrouter",
        title="OpenRouter",
        note="depends on the underlying provider of the model",
    ),
    Preset(
        "holysheep",
        "https://api.holysheep.ai/v1",
        ("HOLYSHEEP_API_KEY",),
        title="HolySheep AI",
        note="undocumented; check with specclient models probe",
    ),
    Preset(
        "baseten",
        "https://{deployment}.api.baseten.co/environments/production/sync/v1",
        ("BASETEN_API_KEY",),
        "baseten",
        title="Baseten",
        note="a speculator is chosen when a model is deployed; base_url is the URL of the deployment",
    ),
    Preset(
        "perplexity",
        "https://api.perplexity.ai",
        ("PERPLEXITY_API_KEY",),
        "perplexity",
        other_urls=("https://api.perplexity.ai/v1",),
        title="Perplexity",
    ),
)

HOSTED = tuple(replace(row, key_required=True) for row in _ROWS)
"""All hosted providers. All of them require a key."""
