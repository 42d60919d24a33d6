"""Simulate the choice of draft lengths on published traces, beside every fixed length.

    python benchmarks/draft_lengths.py TRACE [TRACE …] [--calls 3000] [--seeds 2] [--save]

A trace is Azure's or Mooncake's conversation trace. Its lengths and the gaps of its arrivals are replayed on
one engine, in phases from low load to more than plain decoding can serve. The times of rounds by requests and
draft length were measured on an NVIDIA H200 with a padded 8B shape (``benchmarks/results/gpu.json``), those
of prompts there, too. The acceptance of a task is that of the bundled pair on code and on prose
(``benchmarks/fleets/service_times.jsonl``); that of a request varies around it.

``auto`` is the engine's own choice: :class:`specclient_local.drafting.length_policy.CommonLength` with each
request's estimate, which begins at the acceptance of the latest drafts of all requests. ``by task`` lets it
begin at that of requests of the same task and class of prompt lengths, ``known`` at its true value, which
no engine knows.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import random
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from specclient_local.drafting.length_policy import AdaptiveLength, CommonLength, RecentAcceptance
from specclient_local.drafting.round_costs import RecordedCosts, RoundCosts
from specclient_local.request.token_tree import TokenTree

from specclient.routing.simulate.arrivals import read_arrivals

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "draft_lengths.json"
DEPTHS = tuple(range(9))
#: Load as a share of what plain decoding can serve, and the share of the calls.
PHASES = {
    "night": (0.1, 0.1),
    "morning": (0.5, 0.2),
    "noon": (1.1, 0.4),
    "evening": (0.7, 0.2),
    "late": (0.2, 0.1),
}
#: The probability that a drafted token is accepted, by the task that the simulation gives a call.
ACCEPTANCE = {"code": 0.72, "prose": 0.53}
#: The standard deviation of a request's acceptance around that of its task, assumed.
SPREAD = 0.1
#: Longest prompt and answer: what one engine's cache holds for 64 requests.
PROMPT, ANSWER = 8192, 1024


class RoundTimes:
    """Measured seconds of rounds and prompts."""

    def __init__(self, file: Path) -> None:
        found = json.loads(file.read_text(encoding="utf-8"))
        plain = {row["batch"]: row["batch"] / row["tokens_per_s"] for row in found["batches"]["rows"]}
        times: dict[tuple[int, int], list[float]] = {(size, 0): [each] for size, each in plain.items()}
        for row in found["grid"]["rows"]:
            seconds = row["batch"] * row["tokens_a_round"] / row["tokens_per_s"]
            times.setdefault((row["batch"], row["depth"]), []).append(seconds)
        self.sizes = sorted(plain)
        self.seconds = {key: mean(each) for key, each in times.items()}
        #: The slope of the measured prompts of 400 and 900 tokens.
        prefill = [float(text.split()[-1]) for text in map(str, found["checks"]["prefill"].values())][-4:]
        self.prompt_token_s = (prefill[3] - prefill[0]) / 500 / 1000
        unit = self.seconds[1, 0]
        self.costs = RoundCosts(
            0.0,
            tuple(self.seconds[1, k] / unit for k in DEPTHS),
            recorded=tuple(
                RecordedCosts(size, 0.0, tuple(self.seconds[size, k] / unit for k in DEPTHS))
                for size in self.sizes
            ),
        )

    def size(self, count: int) -> int:
        """Return the slots of the rounds of so many requests."""
        return next(size for size in self.sizes if size >= count)


@dataclass
class DraftedCall:
    """A call: its arrival and work, its acceptance, and the times that it saw."""

    at: float
    phase: str
    task: str
    prompt: int
    tokens: int
    alpha: float
    left: float = 0.0
    ended_at: float = 0.0
    policy: AdaptiveLength | None = None


class Chosen:
    """The engine's own choice of a common length."""

    def __init__(self, times: RoundTimes, kind: Callable[[DraftedCall], Hashable] | None) -> None:
        self._times, self._kind = times, kind
        self._recent: dict[Hashable, RecentAcceptance] = {}
        self._common = CommonLength()
        self._trees = [TokenTree.chain(list(range(1, k + 1))) for k in DEPTHS]

    def begin(self, call: DraftedCall) -> None:
        """Give a call its estimate."""
        if self._kind is None:
            call.policy = AdaptiveLength(self._times.costs, prior=call.alpha, weight=1e6)
            return
        recent = self._recent.setdefault(self._kind(call), RecentAcceptance())
        call.policy = AdaptiveLength(self._times.costs, recent=recent)

    def length(self, running: Sequence[DraftedCall]) -> int:
        """Return the length of the next round."""
        policies = [call.policy for call in running if call.policy is not None]
        return self._common.next(policies, 0, 0, self._times.size(len(running)))

    def ended(
        self, running: Sequence[DraftedCall], length: int, accepted: Sequence[int], seconds: float
    ) -> None:
        """Learn from a round."""
        self._common.measured.add(self._times.size(len(running)), length, seconds)
        if length:
            for call, kept in zip(running, accepted, strict=True):
                assert call.policy is not None
                call.policy.update(self._trees[length], list(range(kept)))


class Fixed:
    """One length for all rounds."""

    def __init__(self, length: int) -> None:
        self._length = length

    def begin(self, call: DraftedCall) -> None:
        """Do nothing."""

    def length(self, running: Sequence[DraftedCall]) -> int:
        """Return the length."""
        del running
        return self._length

    def ended(
        self, running: Sequence[DraftedCall], length: int, accepted: Sequence[int], seconds: float
    ) -> None:
        """Do nothing."""


def day(file: Path, times: RoundTimes, calls: int, seed: int) -> list[DraftedCall]:
    """Return the calls of a day: the trace's gaps and lengths, at the loads of the phases."""
    dice = random.Random(seed)
    arrivals = read_arrivals(file, most=calls, skip_invalid=True).calls
    sizes = [(min(a.prompt_tokens, PROMPT), min(max(a.completion_tokens, 2), ANSWER)) for a in arrivals]
    gaps = [max(b.at - a.at, 0.0) for a, b in itertools.pairwise(arrivals)] + [0.0]
    mean_gap = mean(gaps)
    most = times.sizes[-1]
    work = mean(p * times.prompt_token_s + t * times.seconds[most, 0] / most for p, t in sizes)
    made, now, place = [], 0.0, 0
    for phase, (load, share) in PHASES.items():
        for _ in range(round(share * len(arrivals))):
            now += gaps[place % len(gaps)] / mean_gap * work / load
            task = dice.choice(tuple(ACCEPTANCE))
            alpha = min(max(dice.gauss(ACCEPTANCE[task], SPREAD), 0.05), 0.95)
            made.append(DraftedCall(now, phase, task, *sizes[place % len(sizes)], alpha))
            place += 1
    return made


def simulate(calls: Sequence[DraftedCall], times: RoundTimes, way: Chosen | Fixed, seed: int) -> None:
    """Serve the calls on one engine: prompts one by one as slots are free, rounds for all between them."""
    dice, now, next_call = random.Random(seed), 0.0, 0
    running: list[DraftedCall] = []
    while next_call < len(calls) or running:
        if not running:
            now = max(now, calls[next_call].at)
        if next_call < len(calls) and calls[next_call].at <= now and len(running) < times.sizes[-1]:
            call = calls[next_call]
            next_call += 1
            now += call.prompt * times.prompt_token_s
            call.left = call.tokens - 1
            way.begin(call)
            running.append(call)
            continue
        length = way.length(running)
        seconds = times.seconds[times.size(len(running)), length]
        now += seconds
        accepted = [_accepted(call.alpha, length, dice) for call in running]
        way.ended(running, length, accepted, seconds)
        for call, kept in zip(running, accepted, strict=True):
            call.left -= kept + 1
            if call.left <= 0:
                call.ended_at = now
        running = [call for call in running if call.left > 0]


def _accepted(alpha: float, length: int, dice: random.Random) -> int:
    """Return the accepted tokens of a draft: geometric, up to its length."""
    if not length:
        return 0
    return min(int(math.log(1 - dice.random()) / math.log(alpha)), length)


def ways(times: RoundTimes) -> dict[str, Callable[[], Chosen | Fixed]]:
    """Return what chooses the lengths, by name."""

    def fixed(length: int) -> Callable[[], Fixed]:
        return lambda: Fixed(length)

    return {
        **{f"length {k}": fixed(k) for k in DEPTHS},
        "auto": lambda: Chosen(times, lambda _: None),
        "auto, by task": lambda: Chosen(times, lambda call: (call.task, call.prompt.bit_length() // 2)),
        "auto, known": lambda: Chosen(times, None),
    }


def main() -> None:
    """Simulate, print a table for each trace, then one JSON line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("traces", type=Path, nargs="+")
    parser.add_argument("--calls", type=int, default=3000)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--save", action="store_true", help="save the figures to benchmarks/results")
    given = parser.parse_args()
    times, result = RoundTimes(HERE / "results" / "gpu.json"), {}
    for file in given.traces:
        heads = "".join(f"{each:>9}" for each in (*PHASES, "day"))
        print(f"{file.name}: mean seconds of a call\n{'':16}{heads}")
        for name, make in ways(times).items():
            found: dict[str, list[float]] = {}
            for seed in range(given.seeds):
                calls = day(file, times, given.calls, seed)
                simulate(calls, times, make(), seed)
                for call in calls:
                    found.setdefault(call.phase, []).append(call.ended_at - call.at)
            means = {phase: mean(each) for phase, each in found.items()}
            means["day"] = mean([each for some in found.values() for each in some])
            result.setdefault(file.name.split(".")[0], {})[name] = means
            print(f"{name:16}{''.join(f'{each:9.3f}' for each in means.values())}", flush=True)
    print(json.dumps(result))
    if given.save:
        RESULTS.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
