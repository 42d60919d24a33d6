"""Simulated hosts of one open model, with published prices and speeds, and the calls that arrive.

The sources of the figures:

- Prices: list prices of Llama 3.3 70B in the catalogue of genai-prices 0.2; each row names the vendor.
- ``LOAD_CURVE``: Oracle's published benchmark of Llama 3.3 70B on one dedicated unit: seconds to the first
  token and tokens per second of each request, by concurrent requests (docs.oracle.com, generative-ai
  benchmarks).
- Hosts with hardware of their own, and those tuned for speed: medians of the comparison at
  kickllm.com/research/llm-speed-benchmark (April 2026); ``ttft_s`` of GPU hosts: the 0.25 to 0.6 s that
  managedmodels.com gives for them under normal load.
- Acceptance by task with four drafted tokens: chosen so that an idle host has the speedup that Chen et al.
  (2302.01318) measured with a draft of that length, 2.46 times on code and 1.92 times on text; the loss from
  drafting on a full host, 1.4 times: the vLLM blog of 2024-10-17.
- Requests per minute: Groq's for this model, over a sixth of a minute, since OpenAI's guide on rate limits
  warns that a quota may be enforced over shorter windows.
- Prompts and answers of chat: medians of the conversation trace of Splitwise (2311.18677), 1,020 and 129
  tokens; prompts of code: of its coding trace, 1,500, with answers of a function, not of a line. Calls come
  in bursts with gamma gaps (BurstGPT, 2401.17644), and with the hours of the day (DynamoLLM, 2408.00741).
- Outages last minutes to hours (Chu et al., 2501.12469) and occur every few weeks. A run covers a few hours,
  so here they occur far more often, together with slow periods; a run is harsher than a day on any of these
  hosts.
- Prompt caches: half the price of cached tokens on the rows named after Groq and Fireworks, two hours of
  lifetime on the former, five guaranteed minutes at the full price on the row named after Cerebras (their
  pages on prompt caching). The own H200 has 60 GB beside weights of 8 bits, and Llama 70B needs 0.33 MB a
  token: 180,000 tokens, for which no price is counted but a tenth for the share of a request.

Limits of time, spreads, drift, the mean load of hosts, and the sizes and hits of other caches have no public
source; they are assumptions.
"""

from __future__ import annotations

from dataclasses import dataclass

from specclient.routing.simulate.scenario import PrefixCacheSpec
from specclient.types.criterion import PromptTask

__all__ = [
    "ACCEPTANCE_BY_TASK",
    "DRAFT_DEPTH",
    "LOAD_CURVE",
    "MIXED_WORLD",
    "CallKind",
    "SimulatedHost",
    "WorldSpec",
]

#: A GPU host: concurrent requests, seconds to the first token, tokens per second of each request.
LOAD_CURVE = (
    (1, 0.05, 58.64),
    (2, 0.06, 57.98),
    (4, 0.06, 56.74),
    (8, 0.07, 54.74),
    (16, 0.09, 50.89),
    (32, 0.16, 44.32),
    (64, 0.40, 35.74),
    (128, 1.29, 25.60),
    (256, 4.09, 15.27),
)

#: Tokens drafted at a time, and the share that is accepted. With a draft pass of 0.05 target passes, an idle
#: host is 2.5 times faster on code and 2.0 times on chat.
DRAFT_DEPTH = 4
ACCEPTANCE_BY_TASK: dict[PromptTask, float] = {
    "code": 0.75,
    "chat": 0.62,
    "document": 0.66,
    "long_context": 0.62,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedHost:
    """One endpoint that serves the model.

    Attributes:
        route: its name as a candidate.
        input, output: dollars per million tokens.
        tokens_s: tokens per second of each request, without speculation, at its usual load.
        ttft_s: seconds to the first token of a short prompt at its usual load.
        prefill_s: prompt tokens per second of prefill.
        load: its mean load, from 0 to 1; ``swing``: the change with the time of day.
        crowded: whether load slows it as in ``LOAD_CURVE``; on hardware that serves one request after the
            other, requests only wait.
        drafts: whether it decodes speculatively.
        per_minute: its rate limit in requests per minute, None for none.
        troubles: outages and slow periods per hour, together.
        failures: the share of calls that fail for no visible reason.
        cache: its prompt cache, None for none.
    """

    route: str
    input: float
    output: float
    tokens_s: float
    ttft_s: float
    prefill_s: float
    load: float
    swing: float
    crowded: bool = True
    drafts: bool = False
    per_minute: float | None = None
    troubles: float = 0.25
    failures: float = 0.002
    cache: PrefixCacheSpec | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CallKind:
    """One kind of call: its frequency, length and limits of time.

    Attributes:
        share: of all calls.
        prompt, answer: median tokens; the spreads are standard deviations of their logarithms.
        max_ttft_s, max_latency_s: its limits.
    """

    task: PromptTask
    share: float
    prompt: float
    answer: float
    prompt_spread: float = 0.4
    answer_spread: float = 0.6
    max_ttft_s: float | None = None
    max_latency_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldSpec:
    """The specification of a world: its hosts, its kinds of calls, and its duration.

    Attributes:
        calls: the number of calls of a run; ``per_minute``: their mean rate.
        day_s: seconds of a simulated day, shorter than a real one, so that a run covers all of its hours.
        burst: coefficient of variation of the gaps between calls; 1 is Poisson.
        drift: the change of speeds in an hour, as a standard deviation of their logarithm.
    """

    name: str
    hosts: tuple[SimulatedHost, ...]
    kinds: tuple[CallKind, ...]
    calls: int = 6000
    per_minute: float = 16.0
    day_s: float = 6 * 3600.0
    burst: float = 1.5
    drift: float = 0.15


MIXED_WORLD = WorldSpec(
    name="mixed",
    hosts=(
        SimulatedHost(  # price: novita; a full GPU host
            route="budget/llama-70b", input=0.135, output=0.40, tokens_s=38, ttft_s=0.60, prefill_s=6000,
            load=0.68, swing=0.12, troubles=0.5, failures=0.006,
            cache=PrefixCacheSpec(lifetime_s=300, hits=0.85),
        ),
        SimulatedHost(  # price: nebius
            route="saver/llama-70b", input=0.25, output=0.75, tokens_s=45, ttft_s=0.50, prefill_s=8000,
            load=0.58, swing=0.12, troubles=0.4, failures=0.004,
            cache=PrefixCacheSpec(lifetime_s=300, hits=0.9),
        ),
        SimulatedHost(  # price: hyperbolic, nscale
            route="steady/llama-70b", input=0.40, output=0.40, tokens_s=51, ttft_s=0.40, prefill_s=8000,
            load=0.45, swing=0.10,
        ),
        # One H200 at $3 an hour over the 1,087 tokens a second that Oracle gives for 8 requests.
        SimulatedHost(
            route="own/llama-70b", input=0.77, output=0.77, tokens_s=51, ttft_s=0.10, prefill_s=8000,
            load=0.40, swing=0.20, drafts=True,
            cache=PrefixCacheSpec(tokens=180_000, lifetime_s=3600, hits=1.0, price=0.1),
        ),
        SimulatedHost(  # price, speed and requests a minute: groq
            route="lpu/llama-70b", input=0.59, output=0.79, tokens_s=300, ttft_s=0.15, prefill_s=20000,
            load=0.50, swing=0.15, crowded=False, per_minute=30,
            cache=PrefixCacheSpec(lifetime_s=7200, hits=0.9, price=0.5),
        ),
        SimulatedHost(  # price and speed: together's turbo
            route="turbo/llama-70b", input=0.88, output=0.88, tokens_s=120, ttft_s=0.25, prefill_s=10000,
            load=0.40, swing=0.10, troubles=0.16,
            cache=PrefixCacheSpec(lifetime_s=300, hits=0.9),
        ),
        SimulatedHost(  # price and speed: fireworks, 160 tokens a second on chat with its drafts
            route="draft/llama-70b", input=0.90, output=0.90, tokens_s=80, ttft_s=0.25, prefill_s=10000,
            load=0.35, swing=0.10, drafts=True, troubles=0.16,
            cache=PrefixCacheSpec(lifetime_s=600, hits=0.95, price=0.5),
        ),
        SimulatedHost(  # price and speed: cerebras
            route="wafer/llama-70b", input=0.85, output=1.20, tokens_s=290, ttft_s=0.14, prefill_s=20000,
            load=0.40, swing=0.10, crowded=False, troubles=0.16,
            cache=PrefixCacheSpec(lifetime_s=300, hits=0.95),
        ),
    ),
    kinds=(
        CallKind(task="chat", share=0.45, prompt=1020, answer=129, max_ttft_s=1.0, max_latency_s=10),
        CallKind(task="code", share=0.25, prompt=1500, answer=200, max_latency_s=6),
        CallKind(task="document", share=0.20, prompt=3000, answer=300, max_latency_s=30),
        CallKind(task="long_context", share=0.10, prompt=14000, answer=250, max_latency_s=20),
    ),
)  # fmt: skip
