"""Turn the name of a form of verification into how to ask and how to read."""

from __future__ import annotations

from collections.abc import Mapping

from specclient.call.strategies.remote import echo_logprobs, prompt_logprobs
from specclient.call.strategies.remote.scoring import ScoringFormat

#: What :attr:`specclient.types.capabilities.Capabilities.verification` names.
SCORING_FORMATS: Mapping[str, ScoringFormat] = {
    "prompt_logprobs": ScoringFormat(prompt_logprobs.ask_vllm, prompt_logprobs.read_vllm, streams=True),
    "sglang": ScoringFormat(prompt_logprobs.ask_sglang, prompt_logprobs.read_sglang),
    "tgi": ScoringFormat(echo_logprobs.ask_tgi, echo_logprobs.read_tgi, by_text=True),
    "echo_last": ScoringFormat(echo_logprobs.ask_echo_last, echo_logprobs.read_echo_last),
    "echo": ScoringFormat(echo_logprobs.ask_echo, echo_logprobs.read_echo, by_text=True),
}
