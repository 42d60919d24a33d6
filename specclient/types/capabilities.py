"""What an endpoint exposes of speculation, in one vocabulary: facts of a preset, or found by a probe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

#: How an endpoint is told to continue a partial assistant turn: it simply stands last (``assistant``), is
#: marked ``prefix: true`` (``prefix``), or ``continue_final_message`` is set; ``completions`` where only
#: plain completions continue a text.
Prefill = Literal["assistant", "prefix", "continue_final_message", "completions"]

#: How the log-probabilities of prompt tokens are asked for: vLLM's ``prompt_logprobs``, SGLang's
#: ``/generate``, TGI's ``/generate``, Fireworks' ``echo_last``, or ``echo`` with ``logprobs``.
Verification = Literal["prompt_logprobs", "sglang", "tgi", "echo_last", "echo"]

#: When a stream tells its usage: where ``stream_options.include_usage`` asks for it, or by itself.
StreamedUsage = Literal["asked", "unasked"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What an endpoint takes and tells. ``None`` means unknown: a probe can find out. ``False`` means no.

    Attributes:
        prediction: whether ``prediction`` is honoured.
        prediction_models: beginnings of the names of the models that honour it; empty for all.
        prediction_conflicts: parameters refused beside ``prediction``.
        rejected_billed: whether the tokens of a prediction that are rejected are billed.
        speculation: whether ``speculation`` (text or token ids) is taken.
        draft_model: whether a request may name the ``draft_model``.
        draft_length: the field of the body that sets how many tokens are drafted, dotted where nested.
        telemetry: telemetry formats of its answers, see :mod:`specclient.telemetry.formats`; empty for none.
        telemetry_flags: fields of the body that make it tell; sent by us only where it accepts them.
        prefill: see :data:`Prefill`.
        verification: see :data:`Verification`.
        streamed_usage: see :data:`StreamedUsage`.
        strict: whether unknown fields of a body are refused.
    """

    __pydantic_config__: ClassVar[Mapping[str, Any]] = {"extra": "forbid"}  # where a file gives them

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
    strict: bool = False


UNKNOWN_CAPABILITIES = Capabilities()
