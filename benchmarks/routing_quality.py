"""Measure what routing by learned quality saves: the curve of RouteLLM's evaluation, by simulation.

    python benchmarks/routing_quality.py --questions FILE [--calls 4000] [--scored 0.3] [--save] [--draw FILE]

The prompts are Spec-Bench's questions (Xia et al., 2401.07851), which have 13 categories. The classifier of
live calls gives each its task. A strong and a weak model answer; whether an answer is good is drawn with a
probability by model and category, which is invented (:data:`GOOD`). A share of the answers is scored. For
every threshold, a policy with that ``min_quality`` starts from the tiers and learns from the scores as a
client does.

The curve has the share of calls to the strong model against quality; PGR is the part of the gap between the
models that is recovered, APGR its mean over the shares, CPT(50 %) the share of strong calls that recovers
half (Ong et al., "RouteLLM", 2406.18665, section 3). Prints the curve, and those figures beside the published
ones, which are for other models and prompts: only the kind of plot is the same. ``--draw`` draws it.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import NamedTuple

from specclient.errors import NoRouteError
from specclient.prices.rates import PriceRates, Quote
from specclient.routing.choose.decisions import choose
from specclient.routing.choose.route_options import RouteOption, RouteRequest
from specclient.routing.choose.tariff import Tariff
from specclient.routing.choose.task_classifier import classify_task, summarize_prompt
from specclient.routing.learn.quality import QualityModel
from specclient.routing.learn.route_estimate import AnswerLength, RouteEstimate
from specclient.types import inference_methods
from specclient.types.criterion import PromptTask
from specclient.types.policy import Policy
from specclient.types.request import Request

RESULTS = Path(__file__).parent / "results" / "routing_quality.json"
STRONG, WEAK = "strong/model", "weak/model"
#: The probability of a good answer by category: of the strong model, and of the weak one. Invented: close on
#: writing and summaries, far apart on mathematics and code.
GOOD = {
    "writing": (0.93, 0.88), "roleplay": (0.92, 0.88), "reasoning": (0.85, 0.55), "math": (0.90, 0.50),
    "coding": (0.90, 0.55), "extraction": (0.93, 0.78), "stem": (0.95, 0.88), "humanities": (0.97, 0.93),
    "translation": (0.92, 0.80), "summarization": (0.92, 0.87), "qa": (0.85, 0.70),
    "math_reasoning": (0.92, 0.55), "rag": (0.88, 0.78),
}  # fmt: skip
#: Dollars per million tokens that RouteLLM gives for GPT-4 and Mixtral 8x7B; tiers of such models.
PRICES, TIERS = {STRONG: "24.7", WEAK: "0.24"}, {STRONG: 0.8, WEAK: 0.6}
#: RouteLLM, table 1 (MT Bench): CPT(50 %), CPT(80 %), APGR. Its curves are plots without figures.
PUBLISHED = {"random": (0.4903, 0.7808, 0.500), "matrix factorization, judged data": (0.1340, 0.3131, 0.802)}
THRESHOLDS = tuple(0.40 + 0.02 * k for k in range(30))
#: The share of calls that go to the other model, whatever the policy says, so that both keep being scored.
TRIED = 0.05


class Question(NamedTuple):
    """A question: its category, and the task that the classifier gives it."""

    category: str
    task: PromptTask


def questions(file: Path) -> list[Question]:
    """Return the first turns of Spec-Bench's questions."""
    found = []
    for line in file.read_text(encoding="utf-8").splitlines():
        given = json.loads(line)
        messages = [{"role": "user", "content": given["turns"][0]}]
        request = Request(inference_methods.CHAT, "auto", {"messages": messages})
        found.append(Question(given["category"], classify_task(summarize_prompt(request))))
    return found


def options() -> tuple[RouteOption, ...]:
    """Return the two models, with their prices and tiers."""
    made = []
    for route, price in PRICES.items():
        rates = PriceRates(input=Decimal(price), output=Decimal(price))
        provider = route.partition("/")[0]
        tariff = Tariff.of(Quote(rates, "RouteLLM"))
        made.append(RouteOption(route, provider, "model", quality=TIERS[route], tariff=tariff))
    return tuple(made)


def run(
    asked: Sequence[Question], threshold: float, calls: int, scored: float, seed: int
) -> tuple[float, float]:
    """Return the share of strong calls and the share of good answers, over the second half of a run."""
    rng, model, offered = Random(seed), QualityModel(), options()
    policy, strong, good, counted = Policy(min_quality=threshold, explore=0), 0, 0.0, 0
    for number in range(calls):
        question = rng.choice(asked)
        listed = model.applied(offered, question.task)
        request = RouteRequest(question.task, 200, AnswerLength(200, 200, 200))
        try:
            chosen = choose(policy, listed, lambda _: RouteEstimate(), request).chosen
        except NoRouteError:  # neither is good enough: the better one
            chosen = max(listed, key=lambda option: option.quality or 0.0).route
        if rng.random() < TRIED:
            chosen = WEAK if chosen == STRONG else STRONG
        expected = GOOD[question.category][chosen == WEAK]
        if rng.random() < scored:
            model.add(chosen, question.task, float(rng.random() < expected))
        if number >= calls // 2:
            counted, strong, good = counted + 1, strong + (chosen == STRONG), good + expected
    return strong / counted, good / counted


def summary(points: Sequence[tuple[float, float]], low: float, high: float) -> tuple[float, float, float]:
    """Return CPT(50 %), CPT(80 %) and APGR of a curve of strong shares and qualities, ends included."""
    curve = sorted([(0.0, low), *points, (1.0, high)])
    gains = [(share, (quality - low) / (high - low)) for share, quality in curve]

    def share_for(wanted: float) -> float:
        for (x0, y0), (x1, y1) in pairwise(gains):
            if y1 >= wanted > y0:
                return x0 + (x1 - x0) * (wanted - y0) / (y1 - y0)
        return 1.0

    area = sum((x1 - x0) * (y0 + y1) / 2 for (x0, y0), (x1, y1) in pairwise(gains))
    return share_for(0.5), share_for(0.8), area


def draw(
    curve: Sequence[tuple[float, float]],
    known: Sequence[tuple[float, float]],
    low: float,
    high: float,
    file: Path,
) -> None:
    """Draw the recovered part of the gap in quality by the share of strong calls, and RouteLLM's figures.

    Args:
        curve, known: strong shares and qualities, learned by task and with known categories.
        low, high: the qualities of the weak and the strong model.
    """
    from matplotlib import pyplot as plt  # noqa: PLC0415 - takes a second
    from plots import save  # noqa: PLC0415 - as above

    figure, axes = plt.subplots(figsize=(6.5, 4.6))
    lines = (("categories known", known, "#009E73", "--"), ("learned by task", curve, "#0072B2", "o-"))
    for label, points, colour, style in lines:
        shares, qualities = zip(*sorted([(0.0, low), *points, (1.0, high)]), strict=True)
        gains = [100 * (quality - low) / (high - low) for quality in qualities]
        axes.plot([100 * share for share in shares], gains, style, color=colour, label=label, markersize=4)
    for (name, (half, most, _)), colour in zip(PUBLISHED.items(), ("#666666", "#D55E00"), strict=True):
        shown = [0, 100 * half, 100 * most, 100]
        axes.plot(shown, [0, 50, 80, 100], "s:", color=colour, label=f"RouteLLM on MT Bench, {name}")
    axes.set_xlabel("calls to the strong model, %")
    axes.set_ylabel("recovered part of the gap in quality, %")
    axes.set_xlim(0, 100)
    axes.set_ylim(0, 105)
    axes.legend(loc="lower right", frameon=False, fontsize=9)
    save(figure, file)


def main() -> None:
    """Run every threshold, print the curve and its figures, then one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--questions", type=Path, required=True, help="Spec-Bench's questions, JSON lines")
    parser.add_argument("--calls", type=int, default=4000, help="calls of a run")
    parser.add_argument("--scored", type=float, default=0.3, help="the share of answers that are scored")
    parser.add_argument("--draw", type=Path, help="draw the curve into this file")
    parser.add_argument("--save", action="store_true", help="save the figures to benchmarks/results")
    args = parser.parse_args()
    asked = questions(args.questions)
    means = [sum(GOOD[each.category][weak] for each in asked) / len(asked) for weak in (0, 1)]
    curve = [run(asked, threshold, args.calls, args.scored, seed=1) for threshold in THRESHOLDS]
    print(f"{'min_quality':>12} {'strong':>8} {'good answers':>13}")
    for threshold, (share, quality) in zip(THRESHOLDS, curve, strict=True):
        print(f"{threshold:12.2f} {share:8.1%} {quality:13.1%}")
    ideal = sorted(asked, key=lambda each: GOOD[each.category][1] - GOOD[each.category][0])
    known, gained = [], means[1]
    for place, each in enumerate(ideal, 1):
        gained += (GOOD[each.category][0] - GOOD[each.category][1]) / len(asked)
        known.append((place / len(asked), gained))
    rows = {
        "by task, learned from scores": summary(curve, means[1], means[0]),
        "if the categories were known": summary(known, means[1], means[0]),
        **{f"RouteLLM, {name}": row for name, row in PUBLISHED.items()},
    }
    print(f"\n{'':42} {'CPT(50 %)':>10} {'CPT(80 %)':>10} {'APGR':>6}")
    for name, (half, most, area) in rows.items():
        print(f"{name:42} {half:10.1%} {most:10.1%} {area:6.3f}")
    tasks = {task: sum(each.task == task for each in asked) for task in sorted({each.task for each in asked})}
    result = {"calls": args.calls, "scored": args.scored, "tasks": tasks, "curve": curve, "figures": rows}
    print(json.dumps(result))
    if args.draw is not None:
        draw(curve, known, means[1], means[0], args.draw)
    if args.save:
        RESULTS.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
