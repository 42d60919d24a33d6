"""Measure gateways: the latency that `specclient serve` and LiteLLM's proxy add, and their throughput.

    python benchmarks/gateway.py [--rounds 3] [--litellm VENV/bin/python] [--save]

The upstream has canned responses and runs in a separate process. For latency, it responds like a model (after
0.2 s, then a word every 20 ms). As many clients as the table says send a request every 0.3 s (a stream every
second), alternately to the upstream and to `specclient serve`. The added latency is the difference of the
medians within a round, and of these the median over rounds. For throughput, the upstream responds
immediately, and 64 clients send requests without a pause, also to LiteLLM's proxy and to Portkey's gateway.
Each gateway is one process; specclient's ledger is on.

LiteLLM pins its dependencies, so it needs an environment of its own. The option, or LITELLM_PYTHON, names its
Python. Without it, only specclient is measured:

    python -m venv /tmp/litellm && /tmp/litellm/bin/pip install 'litellm[proxy]'

Portkey's gateway needs Node.js; ``--portkey``, or PORTKEY_GATEWAY, names the folder of its package:

    npm install --prefix /tmp/portkey @portkey-ai/gateway
    python benchmarks/gateway.py --portkey /tmp/portkey/node_modules/@portkey-ai/gateway

Prints a table, then one JSON line; ``--save`` writes it to ``benchmarks/results/gateway.json``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import product
from pathlib import Path
from typing import Any

from canned import CHUNKS, WORDS
from client import serving
from gateway_load import LoadResult, Subject, send_load
from gateway_servers import KEY, MODEL, QUICK, THINKING, Running, litellm, ours, portkey

RESULT = Path(__file__).parent / "results" / "gateway.json"
CROWDS = (1, 16, 64)
#: Seconds of requests in a round, for each figure.
LONG_S = 3.0
DIRECT = "directly"
#: Figures, one per round, by server and name of the figure.
Table = dict[str, dict[str, list[float]]]
#: Seconds of requests before the first round, at a rate that is a guess of theirs: V8 compiles Portkey's
#: code in the first thousands of requests, which take twenty times as long.
WARM_UP_S = 16.0
WANTED_MS = 3.0
#: Other gateways and the required ratio of our throughput to theirs, by the ratio's name in the figures.
PEERS = {"ratio": ("LiteLLM", 3.0), "ratio_portkey": ("Portkey", 2.5)}


def checker(chunks: int) -> Callable[[bytes], None]:
    """Return a function that ends the program if a response is not the upstream's.

    Args:
        chunks: minimum chunks of a stream, including the one with the finish reason; 0 if not streamed.
    """

    def check(answer: bytes) -> None:
        good = b"lazy dog." in answer if not chunks else answer.count(b"chat.completion.chunk") >= chunks
        ended = not chunks or b"data: [DONE]" in answer
        if not answer.startswith(b"HTTP/1.1 200") or not good or not ended:
            raise SystemExit(f"wrong response: {answer[:1000]!r}")

    return check


def subject_of(gateway: Running, path: str) -> Subject:
    """Return a gateway as the subject of requests that it sends to a path of the upstream."""
    return Subject(gateway.name, gateway.port, "/v1", gateway.models[path], KEY, gateway.headers)


async def latencies(upstream: int, gateways: list[Running], rounds: int) -> Table:
    """Return the milliseconds that each gateway adds, by kind of request: one figure per round."""
    subjects = [Subject(DIRECT, upstream, THINKING, MODEL), *(subject_of(g, THINKING) for g in gateways)]
    added: Table = {gateway.name: {} for gateway in gateways}
    for turn, (at_once, stream) in product(range(rounds + 1), product(CROWDS, (False, True))):
        every_s = 1.0 if stream else 0.3
        times = round((LONG_S if turn else 1.0) / every_s)
        results: dict[str, LoadResult] = {}
        for subject in subjects:
            results[subject.name] = await send_load(
                subject, at_once, times, stream=stream, check=checker(WORDS * stream), every_s=every_s
            )
        if not turn:  # the first turn warms up
            continue
        what, name = ("first", "first event of a stream") if stream else ("whole", "whole answer")
        for gateway in gateways:
            difference = results[gateway.name].median_ms(what) - results[DIRECT].median_ms(what)
            added[gateway.name].setdefault(f"{name}, {at_once} at once", []).append(difference)
    return added


async def throughputs(upstream: int, gateways: list[Running], rounds: int) -> Table:
    """Return responses per second, directly and by gateway, by kind of request: one figure per round."""
    subjects = [Subject(DIRECT, upstream, QUICK, MODEL), *(subject_of(g, QUICK) for g in gateways)]
    whole_only = {gateway.name for gateway in gateways if not gateway.streams}
    rates: Table = {subject.name: {} for subject in subjects}
    pace = {subject.name: 250.0 for subject in subjects}
    for turn in range(rounds + 1):
        for stream in (False, True):
            for subject in subjects:
                if stream and subject.name in whole_only:
                    continue
                rate = pace[subject.name] / (20 if stream else 1)
                times = max(1, round(rate * (LONG_S if turn else WARM_UP_S) / 64))
                result = await send_load(subject, 64, times, stream=stream, check=checker(CHUNKS * stream))
                if not stream:
                    pace[subject.name] = result.per_second
                if turn:
                    name = f"streams of {CHUNKS} events a second" if stream else "answers a second"
                    rates[subject.name].setdefault(name, []).append(result.per_second)
    return rates


def figures_of(added: Table, rates: Table) -> dict[str, Any]:
    """Return medians over the rounds, and the median ratios of our throughput to others' within a round."""

    def medians(table: dict[str, list[float]]) -> dict[str, float]:
        return {what: round(statistics.median(values), 2) for what, values in table.items()}

    figures: dict[str, Any] = {
        "added_ms": {name: medians(table) for name, table in added.items()},
        "a_second": {name: medians(table) for name, table in rates.items()},
    }
    for name, (server, _) in PEERS.items():
        if server in rates:
            pairs = {
                what: zip(rates["specclient"][what], rates[server][what], strict=True)
                for what in rates[server]
            }
            figures[name] = {
                what: round(statistics.median(own / theirs for own, theirs in pair), 2)
                for what, pair in pairs.items()
            }
    return figures


def show(figures: dict[str, Any]) -> None:
    """Print the table."""
    names = list(figures["added_ms"])
    print(f"{'added latency, median, ms':38}", *(f"{name:>12}" for name in names), f"{'required':>10}")
    for what in figures["added_ms"][names[0]]:
        cells = (f"{figures['added_ms'][name][what]:12.2f}" for name in names)
        print(f"{what:38}", *cells, f"{f'≤ {WANTED_MS:g}':>10}")
    print()
    names = list(figures["a_second"])
    print(f"{'throughput of 64 clients':38}", *(f"{name:>12}" for name in names))
    for what in figures["a_second"][DIRECT]:
        found = (figures["a_second"][name].get(what) for name in names)
        print(f"{what:38}", *(f"{'–' if rate is None else f'{rate:,.1f}':>12}" for rate in found))
    for name, (server, wanted) in PEERS.items():
        for what, ratio in figures.get(name, {}).items():
            print(f"{what:38} {ratio:.2f} × {server}'s (required: {wanted:g})")
    print()
    for name, seconds in figures["started_s"].items():
        print(f"{name} responds {seconds:.2f} s after its start")


@contextmanager
def all_running(
    python: Path | None, package: Path | None, options: list[str]
) -> Iterator[tuple[int, list[Running]]]:
    """Run the upstream and the gateways inside the block; yields the upstream's port, and the gateways."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        url = stack.enter_context(serving())
        gateways = [stack.enter_context(ours(url, folder, options))]
        if python is not None:
            gateways.append(stack.enter_context(litellm(url, folder, python)))
        if package is not None:
            gateways.append(stack.enter_context(portkey(url, folder, package)))
        yield int(url.rpartition(":")[2]), gateways


def main() -> None:
    """Measure, print a table, then one JSON line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3, help="rounds after a warm-up")
    parser.add_argument(
        "--litellm",
        type=Path,
        default=os.environ.get("LITELLM_PYTHON"),
        metavar="PYTHON",
        help="Python of an environment with LiteLLM's proxy (default: LITELLM_PYTHON)",
    )
    parser.add_argument(
        "--portkey",
        type=Path,
        default=os.environ.get("PORTKEY_GATEWAY"),
        metavar="FOLDER",
        help="folder of the npm package @portkey-ai/gateway (default: PORTKEY_GATEWAY)",
    )
    parser.add_argument(
        "--serve", nargs="*", default=[], metavar="OPTION", help="further options of specclient serve"
    )
    parser.add_argument("--save", action="store_true", help="save the figures to benchmarks/results")
    args = parser.parse_args()
    python = Path(args.litellm) if args.litellm else None
    if python is None:
        print("LiteLLM's proxy is not measured; name a Python that has it with --litellm (see --help)\n")
    elif not python.with_name("litellm").exists():
        sys.exit(f"LiteLLM is not installed for {python}: {python} -m pip install 'litellm[proxy]'")
    load = os.getloadavg()
    with all_running(python, args.portkey and Path(args.portkey), args.serve) as (port, gateways):
        added = asyncio.run(latencies(port, gateways[:1], args.rounds))
        rates = asyncio.run(throughputs(port, gateways, args.rounds))
    started = {gateway.name: round(gateway.started_s, 2) for gateway in gateways}
    figures = {
        "rounds": args.rounds, "load": [round(value, 1) for value in load],
        **figures_of(added, rates), "started_s": started,
    }  # fmt: skip
    show(figures)
    print(json.dumps(figures))
    if args.save:
        RESULT.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
