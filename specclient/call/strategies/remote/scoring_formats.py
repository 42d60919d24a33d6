"""The table of scoring formats, by the names in ``Capabilities.verification``."""

from __future__ import annotations

from collections.abc import Mapping

from specclient.call.strategies.remote import echo_logprobs, prompt_logprobs
from specclient.call.strategies.remote.scoring import ScoringFormat

#: The values of :attr:`specclient.types.capabilities.Capabilities.verification`.
SCORING_FORMATS: Mapping[str, ScoringFormat] = {
    "prompt_logprobs": ScoringFormat(
        prompt_logprobs.vllm_request,
        prompt_logprobs.parse_vllm,
        streams=True,
        takes_special_tokens=True,
        takes_stop_ids=True,
    ),
    "sglang": ScoringFormat(
        prompt_logprobs.sglang_request, prompt_logprobs.parse_sglang, takes_stop_ids=True
    ),
    "tgi": ScoringFormat(echo_logprobs.tgi_request, echo_logprobs.parse_tgi, text_only=True),
    "echo_last": ScoringFormat(echo_logprobs.echo_last_request, echo_logprobs.parse_echo_last),
    "echo": ScoringFormat(echo_logprobs.echo_request, echo_logprobs.parse_echo, text_only=True),
}
