"""Measure the bundled pair on held-out modules: acceptance, tokens per round, speed, and code that parses.

    python benchmarks/pair.py [--prompts 40] [--new 128] [--repeat 3]

The reference is plain decoding with the same engine, in the same run, alternating prompt by prompt; the
figure is the median of the ratios over prompts. Acceptance is that of greedy decoding with 4 drafted tokens,
on prompts cut from standard library modules that neither model was trained on. "Parses" is the share of
completions of simple prefixes that are valid Python, cut to the statement that the prefix began. Prints a
table, then one JSON line.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import statistics
import time

from specclient_local import Engine
from specclient_local.api.backend import BUNDLED
from specclient_local.measure.prompts import held_out

PREFIXES = (
    "def fibonacci(n):",
    "def add(a, b):",
    "def is_even(n):",
    "def read_file(path):",
    "def main():",
    "def reverse(items):",
    "def __init__(self, name):",
    "class Stack:",
    "class Node(object):",
    "class Error(Exception):",
    "import os\n\ndef walk(path):",
    "import sys\n\ndef main(args):",
    "try:\n    import json\nexcept ImportError:",
    "for name in names:",
    "if __name__ == '__main__':",
    "def count(words):\n    counts = {}\n",
    "def find(items, key):\n    for item in items:",
    "class Queue:\n    def __init__(self):",
    'def parse(text):\n    """Parse the text."""\n',
    "with open(path) as f:",
)


def acceptance(engine: Engine, prompts: list[list[int]], new: int, drafted: int = 4) -> dict[str, float]:
    """Return greedy acceptance rates, of the first and of all drafted tokens, and tokens per round."""
    rounds = first = kept = proposed = 0.0
    for ids in prompts:
        s = engine.generate(ids, max_tokens=new, temperature=0, draft_length=drafted).speculation
        assert s.steps
        assert s.drafted
        assert s.accepted is not None
        assert s.per_position
        rounds += s.steps
        kept += s.accepted
        proposed += s.drafted
        first += s.per_position[0] * s.steps
    return {"first": first / rounds, "rate": kept / proposed, "tokens_per_round": 1 + kept / rounds}


def speed(engine: Engine, prompts: list[list[int]], new: int, repeat: int) -> dict[str, float]:
    """Return the median tokens per second, plain and speculative, and the median ratio over prompts."""
    plain: list[float] = []
    drafted: list[float] = []
    for _ in range(repeat):
        for ids in prompts:
            for method, figures in (("plain", plain), ("draft", drafted)):
                begun = time.perf_counter()
                r = engine.generate(ids, max_tokens=new, temperature=0, method=method)
                figures.append(len(r.token_ids) / (time.perf_counter() - begun))
    ratios = [b / a for a, b in zip(plain, drafted, strict=True)]
    return {
        "plain_tokens_per_s": statistics.median(plain),
        "speculative_tokens_per_s": statistics.median(drafted),
        "speed_up": statistics.median(ratios),
    }


#: An unindented line that begins another statement: not a closing bracket, a comment or a further branch.
_NEXT = re.compile(r"(?!else\b|elif\b|except\b|finally\b)[^\s)\]}#]")


def parses(prefix: str, text: str) -> bool:
    """Return whether ``prefix + text`` is valid Python, cut to the statement that the prefix begins.

    The statement ends where an unindented line begins the next one. If the token limit truncated it, its
    unfinished last line is ignored.
    """
    lines = (prefix + text).split("\n")
    first = prefix.rstrip("\n").count("\n") + 1
    end = next((i for i, line in enumerate(lines) if i >= first and _NEXT.match(line)), None)
    statement = "\n".join(lines[: len(lines) - 1 if end is None else end])
    try:
        return bool(ast.parse(statement).body)
    except (SyntaxError, ValueError):
        return False


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--prompts", type=int, default=40, help="number of prompts")
    parser.add_argument("--new", type=int, default=128, help="new tokens per answer")
    parser.add_argument("--repeat", type=int, default=3, help="repetitions of the speed measurement")
    args = parser.parse_args()
    with Engine.load(BUNDLED / "target", BUNDLED / "draft", prefix_cache=False) as engine:
        prompts = held_out(engine.tokenizer, args.prompts)
        figures: dict[str, float] = {**acceptance(engine, prompts, args.new)}
        figures |= speed(engine, prompts[: max(5, args.prompts // 4)], args.new, args.repeat)
        parsed = [parses(p, engine.generate(p, max_tokens=200, temperature=0).text) for p in PREFIXES]
        figures["parse_share"] = sum(parsed) / len(PREFIXES)
    for name, value in figures.items():
        print(f"{name:<26}{value:8.3f}")
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
