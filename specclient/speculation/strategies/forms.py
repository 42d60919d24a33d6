"""Turn the name of a form of verification into how to ask and how to read."""

from __future__ import annotations

from collections.abc import Mapping

from specclient.speculation.strategies import echoed, ranked
from specclient.speculation.strategies.scoring import Form

#: What :attr:`specclient.types.capabilities.Capabilities.verification` names.
FORMS: Mapping[str, Form] = {
    "prompt_logprobs": Form(ranked.ask_vllm, ranked.read_vllm, streams=True),
    "sglang": Form(ranked.ask_sglang, ranked.read_sglang),
    "tgi": Form(echoed.ask_tgi, echoed.read_tgi, by_text=True),
    "echo_last": Form(echoed.ask_echo_last, echoed.read_echo_last),
    "echo": Form(echoed.ask_echo, echoed.read_echo, by_text=True),
}
