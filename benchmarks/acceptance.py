"""Mean accepted length by task: HumanEval, and the task groups of Spec-Bench.

    python benchmarks/acceptance.py DATA [--prompts 8] [--new 64] [--length 4] [--threads 1]

DATA is a folder with ``HumanEval.jsonl.gz`` and ``spec_bench_question.jsonl``; a file that is absent is left
out. ``math_reasoning`` of Spec-Bench has the questions of GSM8K. Of each task, the first prompts are
continued by the bundled pair, greedily and without an end token; of a prompt longer than half the context the
end is used. The mean accepted length is tokens per pass of the target, its own included. The bundled models
have learnt the code of Python's standard library, not English. Prints a table, then one JSON line.
"""

from __future__ import annotations

import argparse
import gzip
import json
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import peers
from specclient_local import Engine
from specclient_local.api.backend import BUNDLED
from specclient_local.request.params import EngineMethod

METHODS: Mapping[str, EngineMethod] = {
    "draft": "draft",
    "ngram": "ngram",
    "suffix": "suffix",
    "EAGLE-3": "eagle",
    "Medusa": "medusa",
}
"""Methods by column. Lookups choose their length themselves; the others draft chains of ``--length``."""

_LOOKUPS = ("ngram", "suffix")


def tasks(data: Path) -> dict[str, list[str]]:
    """Return the prompts of each task.

    Raises:
        FileNotFoundError: neither file exists.
    """
    found: dict[str, list[str]] = {}
    human, bench = data / "HumanEval.jsonl.gz", data / "spec_bench_question.jsonl"
    if human.exists():
        lines = gzip.decompress(human.read_bytes()).decode().splitlines()
        found["HumanEval"] = [json.loads(line)["prompt"] for line in lines]
    if bench.exists():
        for line in bench.read_text(encoding="utf-8").splitlines():
            question = json.loads(line)
            found.setdefault(question["category"], []).append(question["turns"][0])
    if not found:
        raise FileNotFoundError(f"neither {human.name} nor {bench.name} is in {data}")
    return found


def accepted_length(engine: Engine, prompts: list[list[int]], name: str, new: int, length: int) -> float:
    """Return the mean accepted length of a method over all answers."""
    tokens = passes = 0
    for ids in prompts:
        drafted = None if name in _LOOKUPS else length
        answer = engine.generate(
            ids, max_tokens=new, temperature=0.0, method=METHODS[name], draft_length=drafted
        )
        tokens, passes = tokens + len(answer.token_ids), passes + answer.speculation.steps
    return tokens / passes


def table(data: Path, *, prompts: int, new: int, length: int, threads: int) -> dict[str, dict[str, float]]:
    """Return the mean accepted length by task and method."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as engines:
        target = peers.endless(BUNDLED / "target", Path(folder) / "target")
        draft = peers.endless(BUNDLED / "draft", Path(folder) / "draft")
        own = engines.enter_context(
            Engine.load(target, draft, heads=("bundled:eagle3", "bundled:medusa"), threads=threads, slots=1)
        )
        most = own.context // 2
        encoded = {
            task: [own.tokenizer.encode(text)[-most:] for text in texts[:prompts]]
            for task, texts in tasks(data).items()
        }
        return {
            task: {name: accepted_length(own, ids, name, new, length) for name in METHODS}
            for task, ids in encoded.items()
        }


def show(found: Mapping[str, Mapping[str, float]]) -> None:
    """Print the table."""
    print(f"{'tokens per pass':<18}" + "".join(f"{name:>10}" for name in METHODS))
    for task, lengths in found.items():
        print(f"{task:<18}" + "".join(f"{value:>10.2f}" for value in lengths.values()))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path, help="folder of the files")
    parser.add_argument("--prompts", type=int, default=8, help="prompts of each task")
    parser.add_argument("--new", type=int, default=64, help="new tokens per answer")
    parser.add_argument("--length", type=int, default=4, help="tokens of a chain")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads")
    args = parser.parse_args()
    peers.quiet()
    found = table(args.data, prompts=args.prompts, new=args.new, length=args.length, threads=args.threads)
    show(found)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
