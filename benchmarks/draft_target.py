"""Measure what a draft brings in the two-call workflow, by its length: latency and cost.

    python benchmarks/draft_target.py --save        # needs: pip install 'specclient[local]'

Three pairs answer prompts of code. The bundled target verifies the bundled draft as a prediction. A canned
server on the loopback interface has the latency of hosted models; its target verifies predictions, or sees
the draft as a turn of the conversation. The draft's length is the task's preset in tokens
(``depth_tokens="task"``), or whole segments of 32 tokens (``depth``). All lengths take turns, prompt by
prompt; figures are medians. Prints a table, then one JSON line; ``--save`` writes it to
``benchmarks/results/draft_target.json``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from aiohttp import web
from specclient_local.measure.prompts import held_out
from specclient_local.model.config import BUNDLED
from specclient_local.model.tokenizer import Tokenizer

from specclient import AsyncOpenAI
from specclient.draft_target import aspeculative_decode

RESULT = Path(__file__).parent / "results" / "draft_target.json"
TASK = "code"
#: Tokens of each answer.
ANSWER_TOKENS = 192
#: Prompts of the canned server, whose latency hardly varies.
HOSTED_PROMPTS = 3

#: Seconds to the first token and per token of the canned models, as of a small and a large hosted model.
SMALL_S, LARGE_S = (0.15, 0.005), (0.4, 0.02)
#: Every this many words, the small model's answer differs from the large one's.
WRONG_EVERY = 5
#: Dollars per million tokens of prompt and completion, of such models.
SMALL_PRICE, LARGE_PRICE = (0.27, 1.10), (2.0, 8.0)

#: The draft's length in each row; an empty row is the target alone.
LENGTHS: Mapping[str, dict[str, Any]] = {
    "the target alone": {},
    "tokens by task: 5": {"depth_tokens": "task"},
    "1 segment: 32": {"depth": 1},
    "2 segments: 64": {"depth": 2},
    "segments by task: 160": {"task": TASK},
}


@dataclass(frozen=True, slots=True)
class Row:
    """Medians of one pair and length.

    Attributes:
        handed: how the target received the draft.
        drafted: tokens of the draft.
        accepted: the share of the draft's words in the answer; None where there is no draft.
        latency_s: of both calls, in seconds.
        cost: of both calls, in millionths of a dollar.
    """

    pair: str
    length: str
    handed: str
    drafted: float
    accepted: float | None
    latency_s: float
    cost: float


async def _answer(request: web.Request) -> web.Response:
    """Answer like a model that takes ``SMALL_S`` or ``LARGE_S``; predicted words take no time per token."""
    asked = await request.json()
    is_small, limit = asked["model"] == "small", asked.get("max_tokens", ANSWER_TOKENS)
    words = [
        f"guess{i}" if is_small and i % WRONG_EVERY == WRONG_EVERY - 1 else f"word{i}" for i in range(limit)
    ]
    predicted = (asked.get("prediction") or {"content": ""})["content"].split()
    accepted = sum(a == b for a, b in zip(predicted, words, strict=False))
    first_s, token_s = SMALL_S if is_small else LARGE_S
    await asyncio.sleep(first_s + token_s * (len(words) - accepted))
    rejected = len(predicted) - accepted
    prompt = sum(len(message["content"].split()) for message in asked["messages"])
    details = {"accepted_prediction_tokens": accepted, "rejected_prediction_tokens": rejected}
    return web.json_response(
        {
            "id": "c",
            "object": "chat.completion",
            "created": 1,
            "model": asked["model"],
            "choices": [
                {
                    "index": 0,
                    "finish_reason": "stop",
                    "message": {"role": "assistant", "content": " ".join(words)},
                }
            ],
            "usage": {
                "prompt_tokens": prompt,
                "completion_tokens": len(words) + rejected,
                "total_tokens": prompt + len(words) + rejected,
                "completion_tokens_details": details,
            },
        }
    )


async def _serve() -> tuple[web.AppRunner, str]:
    """Start the canned server; return its runner and base URL."""
    application = web.Application()
    application.router.add_post("/v1/chat/completions", _answer)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    return runner, f"http://127.0.0.1:{runner.addresses[0][1]}/v1"


def _configuration(url: str) -> str:
    """Return the configuration with both canned providers, their prices, and the bundled draft."""
    lines = [f'[local.models.small]\npath = "{BUNDLED / "draft"}"', "[local]\ndevice_cost_per_hour = 0.10"]
    for name, verifies in (("verifying", "true"), ("conversing", "false")):
        lines += [f'[providers.{name}]\nbase_url = "{url}"\ncapabilities = {{ prediction = {verifies} }}']
        for model, (prompt, completion) in (("small", SMALL_PRICE), ("large", LARGE_PRICE)):
            lines += [f'[prices."{name}/{model}"]\ninput = {prompt}\noutput = {completion}']
    return "\n".join(lines) + "\n"


async def _call(client: AsyncOpenAI, pair: str, length: str, prompt: str) -> Row:
    """Answer one prompt; the row has the figures of this call."""
    draft, target = PAIRS[pair]
    given = LENGTHS[length]
    params = {"max_tokens": ANSWER_TOKENS, "temperature": 0}
    if not given:
        answer: Any = await client.chat.completions.create(
            model=target,
            messages=[{"role": "user", "content": prompt}],
            **params,
        )
        return Row(pair, length, "", 0, None, answer.meta.latency_s, float(answer.meta.cost.total) * 1e6)
    result = await aspeculative_decode(
        prompt, draft=draft, target=target, client=client, **{"task": TASK, **given}, **params
    )
    drafted, cost = result.draft.usage.completion, result.cost
    assert drafted is not None
    assert cost is not None
    return Row(pair, length, result.handed, drafted, result.acceptance, result.latency_s, float(cost) * 1e6)


#: Draft and target by the name of the row.
PAIRS: Mapping[str, tuple[str, str]] = {
    "bundled, verified": ("local/small", "local/demo-target"),
    "hosted, verified": ("verifying/small", "verifying/large"),
    "hosted, conversation": ("conversing/small", "conversing/large"),
}


def _median(rows: Sequence[Row]) -> Row:
    shares = [row.accepted for row in rows if row.accepted is not None]
    return Row(
        rows[0].pair,
        rows[0].length,
        rows[0].handed,
        statistics.median(row.drafted for row in rows),
        statistics.median(shares) if shares else None,
        statistics.median(row.latency_s for row in rows),
        statistics.median(row.cost for row in rows),
    )


async def measure(prompts: Sequence[str], folder: Path) -> list[Row]:
    """Return the medians of every pair and length."""
    runner, url = await _serve()
    file = folder / "specclient.toml"
    file.write_text(_configuration(url))
    found = []
    try:
        async with AsyncOpenAI(config=file, ledger="off") as client:
            for pair in PAIRS:
                rows: dict[str, list[Row]] = {length: [] for length in LENGTHS}
                asked = prompts if pair == "bundled, verified" else prompts[:HOSTED_PROMPTS]
                for number, prompt in enumerate([prompts[0], *asked]):
                    for length in LENGTHS:
                        row = await _call(client, pair, length, prompt)
                        if number:  # the first prompt loads the models
                            rows[length].append(row)
                found += [_median(group) for group in rows.values()]
    finally:
        await runner.cleanup()
    return found


def show(rows: Sequence[Row]) -> str:
    """Print a table; return the line of JSON."""
    head = ("draft's tokens", "handed over", "in the answer", "latency", "cost, $/million")
    print(f"{'':22}{head[0]:24}{head[1]:14}{head[2]:>14}{head[3]:>18}{head[4]:>20}")
    alone = {row.pair: row for row in rows if not row.handed}
    for row in rows:
        base = alone[row.pair]
        latency = f"{row.latency_s:.3f} s ({row.latency_s / base.latency_s:.2f})"
        cost = f"{row.cost:.2f} ({row.cost / base.cost:.2f})"
        share = "" if row.accepted is None else f"{row.accepted:.0%}"
        print(f"{row.pair:22}{row.length:24}{row.handed:14}{share:>14}{latency:>18}{cost:>20}")
    return json.dumps({"benchmark": "draft_target", "rows": [asdict(row) for row in rows]})


def main() -> None:
    """Measure, print a table, then one JSON line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--prompts", type=int, default=15, help="prompts of the bundled pair")
    parser.add_argument("--save", action="store_true", help=f"write {RESULT.name}")
    given = parser.parse_args()
    tokenizer = Tokenizer(BUNDLED / "target")
    prompts = [tokenizer.decode(ids) for ids in held_out(tokenizer, given.prompts)]
    with tempfile.TemporaryDirectory() as folder:
        rows = asyncio.run(measure(prompts, Path(folder)))
    line = show(rows)
    print(line)
    if given.save:
        RESULT.write_text(line + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
