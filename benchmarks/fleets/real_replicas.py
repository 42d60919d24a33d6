"""Run the same calls on two real replicas of vLLM, one processor each, by draft length and placement.

    python benchmarks/fleets/real_replicas.py TRACE ARM --python VLLM_PYTHON [--save FILE]
    python benchmarks/fleets/real_replicas.py --table FILE
    python benchmarks/fleets/real_replicas.py --draw FILE PICTURE.png

TRACE is Mooncake's conversation trace, scaled to the context of the bundled pair (:mod:`real_load`). The
target is the bundled one in the shape of 0.1 billion parameters (``benchmarks/inflated.py``), the draft the
bundled one. ARM is ``fixed0``, ``fixed2`` or ``fixed5``, a fixed draft length with each call at the replica
with the fewest calls in progress, or ``placed``: the draft length follows the requests of a step, and calls
are placed by :mod:`specclient.routing.replicas`, which knows nothing at the start. ``placed0``, ``placed2``
and ``placed5`` are placed calls with a fixed length, ``lengths`` the lengths by load without the placement.
Prefix caching is on in all arms. A call's time is from its planned arrival to its last token. Answers are
greedy and have a fixed number of tokens, so that all arms do equal work.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from real_load import CONTEXT, PHASES, Call, load_of
from vllm_replicas import BUNDLED, counters, program_beside, replicas, schedule

from specclient import AsyncOpenAI, Settings

ROOT = Path(__file__).resolve().parents[2]
ARMS = ("fixed0", "fixed2", "fixed5", "placed", "placed0", "placed2", "placed5", "lengths")
#: Requests at a time of the warm-up.
_WARM = (1, 4, 12)


@dataclass(slots=True)
class Outcome:
    """The times and tokens of one call, seconds after its planned arrival."""

    phase: str
    first_s: float
    total_s: float
    prompt: int
    cached: int
    tokens: int


def settings_of(urls: Sequence[str]) -> Settings:
    """Return the fleet of both replicas, and each replica as a provider."""
    providers = {f"r{number}": {"base_url": url} for number, url in enumerate(urls)}
    lengths = {"draft_length": 0, "urls": list(urls)}
    fleet = {"path": "bundled:target", "context": CONTEXT, "pools": {"main": lengths}}
    return Settings.model_validate({"providers": providers, "fleets": {"big": fleet}, "ledger": "off"})


class Driver:
    """Sends the calls, and notes their outcomes.

    Args:
        client: knows the fleet, and each replica as a provider.
        placed: whether the fleet places calls; else they go to the replica with the fewest in progress.
    """

    def __init__(self, client: AsyncOpenAI, *, placed: bool) -> None:
        self._client = client
        self._placed = placed
        self._in_progress = [0, 0]
        self._last = [0.0, 0.0]
        self.outcomes: list[Outcome] = []

    async def warm_up(self) -> None:
        """Let both replicas serve prompts that no call has."""
        dice = itertools.count(1)
        for count in _WARM:
            calls = [
                self._send(f"r{replica}/main", [next(dice) * 7 % 4000 + 2] * (60 * 2 ** (each % 4)), 16)
                for replica in (0, 1)
                for each in range(count)
            ]
            await asyncio.gather(*calls)

    async def run(self, calls: Sequence[Call]) -> None:
        """Send the calls at their times, and wait for the last one."""
        begun = time.perf_counter()
        async with asyncio.TaskGroup() as tasks:  # the first call that fails ends the run
            for call in calls:
                await asyncio.sleep(max(begun + call.at - time.perf_counter(), 0.0))
                tasks.create_task(self._call(call, begun + call.at))

    async def _call(self, call: Call, planned: float) -> None:
        if self._placed:
            model, replica = "big/main", 0
        else:
            replica = min((0, 1), key=lambda each: (self._in_progress[each], self._last[each]))
            model = f"r{replica}/main"
            self._last[replica] = time.perf_counter()
        self._in_progress[replica] += 1
        try:
            first, ended, usage = await self._send(model, call.prompt, call.tokens)
        finally:
            self._in_progress[replica] -= 1
        details = usage.prompt_tokens_details
        cached = 0 if details is None else details.cached_tokens or 0
        assert usage.completion_tokens == call.tokens
        self.outcomes.append(
            Outcome(call.phase, first - planned, ended - planned, usage.prompt_tokens, cached, call.tokens)
        )

    async def _send(self, model: str, prompt: Sequence[int], tokens: int) -> tuple[float, float, Any]:
        """Return when the first token and the end came, and the usage."""
        first, usage = 0.0, None
        stream = await self._client.completions.create(
            model=model, prompt=list(prompt), max_tokens=tokens, temperature=0, stream=True,
            stream_options={"include_usage": True}, extra_body={"ignore_eos": True},
        )  # fmt: skip
        async for chunk in stream:
            if chunk.choices and not first:
                first = time.perf_counter()
            usage = chunk.usage or usage
        return first, time.perf_counter(), usage


def figures(outcomes: Sequence[Outcome]) -> dict[str, float]:
    """Return the figures of some calls."""
    totals, firsts = sorted(each.total_s for each in outcomes), [each.first_s for each in outcomes]
    return {
        "calls": len(outcomes),
        "mean_s": statistics.mean(totals),
        "median_s": statistics.median(totals),
        "p99_s": totals[min(int(len(totals) * 0.99), len(totals) - 1)],
        "ttft_s": statistics.mean(firsts),
        "hit_rate": sum(each.cached for each in outcomes) / sum(each.prompt for each in outcomes),
    }


async def measured(given: argparse.Namespace, urls: Sequence[str], calls: Sequence[Call]) -> dict[str, Any]:
    """Return the figures of an arm."""
    async with AsyncOpenAI(config=settings_of(urls), max_retries=0) as client:
        driver = Driver(client, placed=given.arm.startswith("placed"))
        await driver.warm_up()
        before, processor = counters(urls), time.process_time()
        begun = time.perf_counter()
        await driver.run(calls)
        took = time.perf_counter() - begun
    after = counters(urls)
    used = {name: after[name] - before[name] for name in after}
    accepted = used["spec_decode_num_accepted_tokens"]
    phases = {
        phase.name: figures([each for each in driver.outcomes if each.phase == phase.name])
        for phase in PHASES
    }
    return {
        "whole": figures(driver.outcomes), **phases, "took_s": took,
        "client_processor_s": time.process_time() - processor,
        "acceptance": accepted / max(used["spec_decode_num_draft_tokens"], 1),
        "tokens_per_draft": 1 + accepted / max(used["spec_decode_num_drafts"], 1),
        "server_hit_rate": used["prefix_cache_hits"] / max(used["prefix_cache_queries"], 1),
        "generated": used["generation_tokens"],
    }  # fmt: skip


def table(arms: dict[str, Any]) -> str:
    """Return the arms' figures as a table."""
    parts = [phase.name for phase in PHASES] + ["whole"]
    lines = [
        "arm        " + "".join(f"{part + ' mean/median/p99 s':>30}" for part in parts) + "   hit  accepted"
    ]
    for arm, found in arms.items():
        cells = [
            f"{found[p]['mean_s']:.3f} / {found[p]['median_s']:.3f} / {found[p]['p99_s']:.2f}" for p in parts
        ]
        tail = f"{found['whole']['hit_rate']:6.3f}{found['acceptance']:8.3f}"
        lines.append(f"{arm:11}" + "".join(f"{cell:>30}" for cell in cells) + tail)
    return "\n".join(lines)


def draw(arms: dict[str, Any], picture: Path) -> None:
    """Draw mean times by phase."""
    import matplotlib.pyplot as plt  # noqa: PLC0415 - the times of --help

    parts = [phase.name for phase in PHASES] + ["whole"]
    figure, axes = plt.subplots(figsize=(7.2, 3.4), layout="constrained")
    width = 0.8 / len(arms)
    for number, (arm, found) in enumerate(arms.items()):
        places = [place + (number - (len(arms) - 1) / 2) * width for place in range(len(parts))]
        axes.bar(places, [found[part]["mean_s"] for part in parts], width, label=arm)
    axes.set_xticks(range(len(parts)), [f"{part} load" if part != "whole" else "whole run" for part in parts])
    axes.set_ylabel("mean seconds of a call")
    axes.legend()
    figure.savefig(picture, dpi=120)


def parser_of_arguments() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("trace", type=Path, nargs="?")
    parser.add_argument("arm", choices=ARMS, nargs="?")
    parser.add_argument(
        "--python", default=sys.executable, help="the interpreter of the environment with vLLM"
    )
    parser.add_argument("--seconds", type=float, default=150.0, help="of the arrivals")
    parser.add_argument("--pace", type=float, default=1.0, help="factor of the phases' rates")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--target", type=Path, help="an inflated target; by default it is made anew")
    parser.add_argument(
        "--prefix", default="taskset -c {core}", help="of a replica's command; {core} is replaced"
    )
    parser.add_argument("--arguments", default="", help="further words of a replica's command")
    parser.add_argument("--logs", default=tempfile.gettempdir(), help="the folder of the replicas' logs")
    parser.add_argument("--save", type=Path, help="a JSON file, to which the arm is added")
    parser.add_argument("--table", type=Path)
    parser.add_argument("--draw", nargs=2, type=Path)
    return parser


def run_arm(given: argparse.Namespace, calls: Sequence[Call]) -> dict[str, Any]:
    """Run the replicas and the calls, and return the figures of the arm."""
    with tempfile.TemporaryDirectory() as folder:
        target = given.target
        if target is None:
            sys.path.insert(0, str(ROOT / "benchmarks"))
            from inflated import SHAPES, inflate  # type: ignore[import-not-found]  # noqa: PLC0415 - imports torch

            target = inflate(BUNDLED / "target", Path(folder) / "target", SHAPES["0.1B"])
        begun = time.monotonic()
        words: dict[str, Any] = {
            "arguments": given.arguments, "prefix": given.prefix, "logs": Path(given.logs),
        }  # fmt: skip
        with replicas(given.python, target.absolute(), given.arm, **words) as urls:
            print(
                f"{given.arm}: ready after {time.monotonic() - begun:.0f} s; {len(calls)} calls", flush=True
            )
            return asyncio.run(measured(given, urls, calls))


def main() -> None:
    """Run one arm, or show the results."""
    parser = parser_of_arguments()
    given = parser.parse_args()
    if given.table is not None:
        print(table(json.loads(given.table.read_text(encoding="utf-8"))["arms"]))
        return
    if given.draw is not None:
        draw(json.loads(given.draw[0].read_text(encoding="utf-8"))["arms"], given.draw[1])
        return
    if given.trace is None or given.arm is None:
        parser.error("TRACE and ARM are needed")
    given.python = str(Path(given.python).absolute())  # the replicas run in another folder
    if not program_beside(given.python).exists():
        parser.error(f"--python {given.python} has no program vllm beside it; name an environment with vLLM")
    tokenizer = BUNDLED / "target" / "tokenizer.json"
    try:
        calls = load_of(given.trace, tokenizer, seconds=given.seconds, pace=given.pace, seed=given.seed)
    except (OSError, ValueError) as error:
        parser.error(str(error))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the replicas end, too
    found = run_arm(given, calls)
    print(table({given.arm: found}))
    print(json.dumps({key: value for key, value in found.items() if not isinstance(value, dict)}))
    if given.save is not None:
        saved = json.loads(given.save.read_text(encoding="utf-8")) if given.save.exists() else {"arms": {}}
        saved["arms"][given.arm] = {
            **found, "seconds": given.seconds, "pace": given.pace, "lengths": schedule(given.arm),
        }  # fmt: skip
        given.save.write_text(json.dumps(saved, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
