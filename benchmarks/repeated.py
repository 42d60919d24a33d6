"""Compare drafts on repeated traffic, as agents send it: the same tasks again, or with other beginnings.

    python benchmarks/repeated.py [--prompts 8] [--new 96] [--threads 1]

Three waves of requests go to one engine with the bundled pair, for every method a new engine: tasks that it
has not seen, the same prompts again, and prompts that lack their first 8 tokens. Greedy, and at temperature
0.7 without a seed. Tokens per pass and acceptance are exact; speeds are tokens per second of processor time,
relative to plain decoding in the same wave. No prefix cache is used, so that only drafts profit from the
repetition. Prints a table.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass

from specclient_local import Engine
from specclient_local.api.backend import BUNDLED
from specclient_local.measure.prompts import held_out
from specclient_local.model.tokenizer import Tokenizer

METHODS = ("plain", "ngram", "suffix", "draft")
CUT = 8


@dataclass(frozen=True, slots=True)
class Wave:
    """The answers to one wave of requests."""

    tokens: int
    passes: int
    drafted: int
    accepted: int
    seconds: float

    @property
    def speed(self) -> float:
        """Tokens per second of processor time."""
        return self.tokens / self.seconds


def answer_wave(engine: Engine, prompts: Sequence[Sequence[int]], new: int, heat: float) -> Wave:
    """Answer every prompt, one after the other."""
    tokens = passes = drafted = accepted = 0
    begun = time.process_time()
    for ids in prompts:
        r = engine.generate(list(ids), max_tokens=new, temperature=heat)
        tokens += len(r.token_ids)
        passes += r.speculation.steps or 0
        drafted += r.speculation.drafted or 0
        accepted += r.speculation.accepted or 0
    return Wave(tokens, passes, drafted, accepted, time.process_time() - begun)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in (("prompts", 8), ("new", 96), ("threads", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    args = parser.parse_args()
    prompts = held_out(Tokenizer(BUNDLED / "target"), args.prompts)
    waves = {"new": prompts, "again": prompts, "again, other beginning": [ids[CUT:] for ids in prompts]}
    print(
        "| temperature | wave | method | tokens per pass | acceptance | speed, of plain |\n"
        "|---|---|---|---|---|---|"
    )
    for heat in (0.0, 0.7):
        found: dict[tuple[str, str], Wave] = {}
        for method in METHODS:
            draft = BUNDLED / "draft" if method == "draft" else None
            with Engine.load(
                BUNDLED / "target", draft, method=method, slots=1, threads=args.threads, prefix_cache=False
            ) as engine:
                for name, own in waves.items():
                    found[name, method] = answer_wave(engine, own, args.new, heat)
        for (name, method), wave in sorted(found.items(), key=lambda item: list(waves).index(item[0][0])):
            rate = "" if not wave.drafted else f"{wave.accepted / wave.drafted:.0%}"
            speed = wave.speed / found[name, "plain"].speed
            print(
                f"| {heat:g} | {name} | {method} | {wave.tokens / wave.passes:.2f} | {rate} | {speed:.2f} |"
            )


if __name__ == "__main__":
    main()
