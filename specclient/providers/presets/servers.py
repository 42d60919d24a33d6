"""Presets of self-hosted servers: their default URLs and capabilities.

From the servers' sources and documentation: vLLM 0.33, SGLang 0.5.2x, TensorRT-LLM's ``trtllm-serve``,
Triton's OpenAI-compatible frontend, NIM 2, llama.cpp, TGI, LM Studio, Ollama, mlx-lm 0.32, TabbyAPI,
``transformers serve`` 5.23. The draft is chosen when the server is started, except where ``draft_model`` or
``draft_length`` is set: then a request can choose it.
"""

from __future__ import annotations

from specclient.providers.presets.preset import Preset
from specclient.types.capabilities import Capabilities

SERVERS = (
    Preset(
        "specclient",
        "http://127.0.0.1:8400/v1",
        ("SPECCLIENT_API_KEY",),
        None,
        Capabilities(
            prediction=True,
            rejected_billed=False,
            telemetry=("specclient", "openai"),
            telemetry_flags={"specclient": {"meta": True}},
            prefill=False,
            verification="prompt_logprobs",
            streamed_usage="asked",
        ),
        limits="none",
        title="specclient serve",
    ),
    Preset(
        "vllm",
        "http://127.0.0.1:8000/v1",
        ("VLLM_API_KEY",),
        None,
        Capabilities(
            prediction=False,  # accepted but ignored
            telemetry=("vllm",),
            prefill="continue_final_message",
            verification="prompt_logprobs",
            streamed_usage="asked",
        ),
        limits="none",
        title="vLLM",
        note="telemetry needs the server option --per-request-spec-decode-metrics",
    ),
    Preset(
        "sglang",
        "http://127.0.0.1:30000/v1",
        ("SGLANG_API_KEY",),
        None,
        Capabilities(
            prediction=False,  # accepted but ignored
            telemetry=("sglang",),
            telemetry_flags={"return_spec_tokens_details": True},
            prefill="continue_final_message",
            verification="sglang",
            streamed_usage="asked",
        ),
        limits="none",
        title="SGLang",
    ),
    Preset(
        "tensorrt-llm",
        "http://127.0.0.1:8000/v1",
        (),
        None,
        Capabilities(
            prediction=False,
            telemetry=("tensorrt",),
            prefill="completions",
            verification=False,
            streamed_usage="asked",
            strict=True,  # its request models forbid unknown fields
        ),
        limits="none",
        title="TensorRT-LLM",
    ),
    Preset(
        "triton",
        "http://127.0.0.1:9000/v1",
        (),
        None,
        Capabilities(
            prediction=False,
            draft_length="num_draft_tokens",
            telemetry=("triton",),
            verification=False,
        ),
        limits="none",
        title="Triton",
        note="draft length and telemetry are those of its own API, /v2/models/…/generate",
    ),
    Preset(
        "nim",
        "http://127.0.0.1:8000/v1",
        ("NIM_API_KEY",),
        None,
        Capabilities(prediction=False, telemetry=("vllm", "sglang")),
        limits="none",
        title="NVIDIA NIM",
        note="same as its engine, vLLM or SGLang",
    ),
    Preset(
        "llamacpp",
        "http://127.0.0.1:8080/v1",
        ("LLAMA_API_KEY",),
        None,
        Capabilities(
            prediction=False,
            telemetry=("llamacpp",),
            prefill="assistant",
            verification=False,  # `echo` is accepted but ignored
            streamed_usage="asked",
        ),
        limits="none",
        title="llama.cpp",
        note="the newest versions listen on port 9931 by default, which base_url then names; with a draft, "
        "the log-probabilities of accepted tokens are 0",
    ),
    Preset(
        "tgi",
        "http://127.0.0.1:3000/v1",
        ("TGI_API_KEY",),
        None,
        Capabilities(
            prediction=False,
            telemetry=(),
            prefill="completions",
            verification="tgi",
            streamed_usage="asked",
        ),
        limits="none",
        title="Hugging Face TGI",
        note="telemetry only in its Prometheus metrics",
    ),
    Preset(
        "lmstudio",
        "http://127.0.0.1:1234/v1",
        ("LMSTUDIO_API_KEY",),
        None,
        Capabilities(
            prediction=False,
            draft_model=True,
            telemetry=("lmstudio",),
            verification=False,
            streamed_usage="asked",
        ),
        limits="none",
        title="LM Studio",
    ),
    Preset(
        "ollama",
        "http://127.0.0.1:11434/v1",
        ("OLLAMA_API_KEY",),
        None,
        Capabilities(
            prediction=False,
            draft_length="options.draft_num_predict",
            telemetry=(),
            verification=False,
            streamed_usage="asked",
        ),
        limits="none",
        title="Ollama",
    ),
    Preset(
        "mlx",
        "http://127.0.0.1:8080/v1",
        (),
        None,
        Capabilities(
            prediction=False,
            draft_model=True,
            draft_length="num_draft_tokens",
            telemetry=(),
            prefill=False,
            verification=False,
            streamed_usage="asked",
        ),
        limits="none",
        title="mlx-lm",
    ),
    Preset(
        "tabbyapi",
        "http://127.0.0.1:5000/v1",
        ("TABBY_API_KEY",),
        None,
        Capabilities(
            prediction=False,
            telemetry=(),
            prefill="continue_final_message",
            verification=False,
            streamed_usage="asked",
        ),
        limits="none",
        title="TabbyAPI",
        note="telemetry only in its log",
    ),
    Preset(
        "transformers",
        "http://127.0.0.1:8000/v1",
        (),
        None,
        Capabilities(
            prediction=False,
            telemetry=(),
            prefill=False,
            verification=False,
            streamed_usage=False,  # `stream_options` is ignored
            strict=True,  # unknown fields are rejected with status 422
        ),
        limits="none",
        title="transformers serve",
    ),
)
"""All self-hosted servers. They require a key only if one has been configured."""
