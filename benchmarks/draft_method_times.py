"""Measure what each way of drafting costs and yields, by task and requests in progress.

    python benchmarks/draft_method_times.py DATA [--groups rag,qa] [--out FILE]

DATA is a folder with ``HumanEval.jsonl.gz`` and ``spec_bench_question.jsonl``. The bundled target has MLPs
padded with units of zero weights, to 60 million parameters: its answers, and so the accepted drafts, stay as
they are, and its rounds cost what those of a model of that size do beside a small draft and small heads.
Times are processor time of one thread, so that other work on the machine counts little; all methods take
turns. ``benchmarks/draft_choice.py`` simulates the choice among the methods with the lines of JSON that
this writes, one for each method, group of tasks and number of requests.
"""

from __future__ import annotations

import argparse
import functools
import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import acceptance
import peers
from fleets.service_times import padded_target
from specclient_local import Engine
from specclient_local.api.backend import BUNDLED
from specclient_local.engine.answer import AnswerEvent, Piece
from specclient_local.request.params import EngineMethod

HERE = Path(__file__).parent
OUT = HERE / "results" / "draft_method_times.jsonl"
#: The method and length of each row; lookups choose their length themselves.
METHODS: Mapping[str, tuple[EngineMethod, int | None]] = {
    "plain": ("plain", None),
    "draft": ("draft", 3),
    "ngram": ("ngram", None),
    "suffix": ("suffix", None),
    "EAGLE-3": ("eagle", 3),
    "Medusa": ("medusa", None),
}
IN_PROGRESS = (1, 4, 16)
#: Tokens of each answer, and the most of a prompt, of which the end is taken.
ANSWER, PROMPT = 64, 192
#: The least prompts of a cell. Those of its cells are distinct, as suffix drafting remembers answers.
PROMPTS = 8
#: Rounds are timed while this share of the requests are in progress.
RUNNING = 0.75
#: The groups of Spec-Bench; all categories of MT-Bench are one.
GROUPS = ("HumanEval", "translation", "summarization", "qa", "math_reasoning", "rag")


def group_of(category: str) -> str:
    """Return the group of a category of Spec-Bench, as its authors divide them."""
    return category if category in GROUPS else "multi_turn"


def grouped(data: Path) -> dict[str, list[str]]:
    """Return the prompts of each group."""
    found: dict[str, list[str]] = {}
    for category, texts in acceptance.tasks(data).items():
        found.setdefault(group_of(category), []).extend(texts)
    return found


class TimedAnswers:
    """The answers of requests that run together: rounds are timed once all have their first token.

    Args:
        prompts: token ids of each request.
    """

    def __init__(self, engine: Engine, prompts: Sequence[list[int]], name: str) -> None:
        self._engine = engine
        self._pieces: list[list[Piece]] = [[] for _ in prompts]
        method, length = METHODS[name]
        for ids, pieces in zip(prompts, self._pieces, strict=True):
            engine.add(
                ids,
                functools.partial(self._note, pieces),
                max_tokens=ANSWER,
                temperature=0.0,
                method=method,
                draft_length=length,
            )

    @staticmethod
    def _note(into: list[Piece], event: AnswerEvent) -> None:
        assert isinstance(event, Piece), event
        into.append(event)

    def _unfinished(self) -> int:
        return sum(each[-1].generation is None for each in self._pieces)

    def run(self) -> tuple[float, float, list[float]]:
        """Return the processor seconds of prompts and of a round, and each request's tokens a round."""
        began = time.process_time()
        while not all(self._pieces):
            self._engine.step()
        prefill_s, rounds = time.process_time() - began, 0
        began = time.process_time()
        while not rounds or self._unfinished() >= RUNNING * len(self._pieces):
            self._engine.step()
            rounds += 1
        seconds = time.process_time() - began
        while self._engine.step():
            pass
        kept = [ANSWER / len(each) for each in self._pieces]
        return prefill_s, seconds / rounds, kept


def cell(engine: Engine, prompts: Sequence[list[int]], name: str, running: int) -> dict[str, Any]:
    """Return the figures of a method, with so many requests in progress."""
    runs = [
        TimedAnswers(engine, batch, name).run()
        for batch in (prompts[at : at + running] for at in range(0, len(prompts), running))
    ]
    return {
        "prefill_s": round(sum(run[0] for run in runs) / sum(map(len, prompts)), 7),
        "round_s": round(sum(run[1] for run in runs) / len(runs), 6),
        "tokens_a_round": [round(each, 3) for run in runs for each in run[2]],
    }


def main() -> None:
    """Measure all cells; a line of JSON each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path, help="folder of the files")
    parser.add_argument("--groups", help="groups to measure, separated by commas; all by default")
    parser.add_argument("--out", type=Path, default=OUT, help="the file; lines are appended")
    given = parser.parse_args()
    peers.quiet()
    with tempfile.TemporaryDirectory() as folder:
        wide = padded_target(Path(folder) / "wide")
        target = peers.endless(wide, Path(folder) / "target")
        draft = peers.endless(BUNDLED / "draft", Path(folder) / "draft")
        with (
            Engine.load(
                target,
                draft,
                heads=tuple(str(BUNDLED / each) for each in ("eagle3", "medusa")),
                threads=1,
                slots=max(IN_PROGRESS),
                prefix_cache=False,
            ) as engine,
            given.out.open("a", encoding="utf-8") as out,
        ):
            wanted = None if given.groups is None else given.groups.split(",")
            for group, texts in grouped(given.data).items():
                if wanted is not None and group not in wanted:
                    continue
                prompts = [engine.tokenizer.encode(text)[-PROMPT:] for text in texts]
                for running in IN_PROGRESS:
                    count = max(running, PROMPTS)
                    mine, prompts = prompts[:count], prompts[count:]
                    for name in METHODS:
                        row = {"method": name, "group": group, "in_progress": running}
                        row |= cell(engine, mine, name, running)
                        out.write(json.dumps(row) + "\n")
                        out.flush()
                        print(row, flush=True)


if __name__ == "__main__":
    main()
