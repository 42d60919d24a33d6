"""The speculation features of an endpoint, known from a preset or found by a probe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

#: How a request makes an endpoint continue a partial assistant turn: it is the last message (``assistant``);
#: it is marked ``prefix: true`` (``prefix``); ``continue_final_message`` is set; or only the completions API
#: continues a text (``completions``).
Prefill = Literal["assistant", "prefix", "continue_final_message", "completions"]

#: How a request gets the log-probabilities of prompt tokens: vLLM's ``prompt_logprobs``, SGLang's
#: ``/generate``, TGI's ``/generate``, Fireworks' ``echo_last``, or ``echo`` with ``logprobs``.
Verification = Literal["prompt_logprobs", "sglang", "tgi", "echo_last", "echo"]

#: When a stream includes its usage: on request by ``stream_options.include_usage``, or always.
StreamedUsage = Literal["asked", "unasked"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """The features of an endpoint. ``None`` means unknown (a probe can find out), ``False`` unsupported.

    Attributes:
        prediction: whether ``prediction`` is supported.
        prediction_models: name prefixes of the models that support it; empty for all.
        prediction_conflicts: parameters that are refused together with ``prediction``.
        rejected_billed: whether rejected prediction tokens are billed.
        speculation: whether ``speculation`` (text or token ids) is supported.
        draft_model: whether a request may set ``draft_model``.
        draft_length: the body field that sets the number of drafted tokens; dotted if nested.
        telemetry: the telemetry formats of its responses, see :mod:`specclient.telemetry.formats`; empty for
            none.
        telemetry_flags: body fields that enable telemetry; sent only if the endpoint accepts them.
        prefill: see :data:`Prefill`.
        verification: see :data:`Verification`.
        streamed_usage: see :data:`StreamedUsage`.
        responses: whether it has the Responses API; False sends a chat completion in its place, None tries.
        strict: whether unknown body fields are refused.
    """

    __pydantic_config__: ClassVar[Mapping[str, Any]] = {"extra": "forbid"}  # when read from a file

    prediction: bool | None = None
    prediction_models: tuple[str, ...] = ()
    prediction_conflicts: tuple[str, ...] = ()
    rejected_billed: bool | None = None
    speculation: bool | None = None
    draft_model: bool | None = None
    draft_length: str | None = None
    telemetry: tuple[str, ...] | None = None
    telemetry_flags: Mapping[str, Any] = field(default_factory=dict)
    prefill: Literal[Prefill, False] | None = None
    verification: Literal[Verification, False] | None = None
    streamed_usage: Literal[StreamedUsage, False] | None = None
    responses: bool | None = None
    strict: bool = False


UNKNOWN_CAPABILITIES = Capabilities()
