"""What a budget may be, which calls it counts, and what a call is taken to come to at most."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from specclient import Budget, ConfigurationError
from specclient.budgets.bounds import ANSWER_TOKENS, bound_of
from specclient.config import Settings, load
from specclient.prices.prices import Prices
from specclient.routing.learn.estimator import Estimator
from specclient.tokens import count_prompt
from specclient.types.api_method import ApiMethod
from specclient.types.budget import BudgetScope, exact_dollars
from specclient.types.call import Call
from specclient.types.inference_methods import CHAT, COMPLETION, EMBEDDING, RESPONSE
from specclient.types.request import PerCallOptions, Request
from specclient.types.route import Decision
from specclient.types.usage import Usage

SCOPE = BudgetScope("openai", ("openai/gpt-4.1", "gpt-4.1"), {"team": "search", "env": "prod"}, "run-7")


@pytest.mark.parametrize(
    ("given_", "fits"),
    [
        ({}, True),
        ({"provider": "openai"}, True),
        ({"provider": "open"}, False),
        ({"model": "openai/gpt-4.1"}, True),
        ({"model": "gpt-4.1"}, True),
        ({"model": "gpt-4"}, False),
        ({"model": "gpt-4*"}, True),
        ({"model": "openai/*"}, True),
        ({"model": "local/*"}, False),
        ({"tag": "team=search"}, True),
        ({"tag": "team=sea"}, False),
        ({"tag": "user=*"}, False),
        ({"session": "run-7"}, True),
        ({"session": "run"}, False),
        ({"provider": "openai", "model": "gpt-4.1", "tag": "env=prod", "session": "*"}, True),
        ({"provider": "openai", "model": "gpt-4.1", "tag": "env=dev", "session": "*"}, False),
    ],
)
def test_what_a_budget_counts(given_: dict[str, str], fits: bool) -> None:
    assert (Budget(name="b", usd=1, **given_).subject(SCOPE) is not None) is fits


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("", "budgets.b: one of usd and tokens must be given, and not both"),
        ("usd = 1\ntokens = 1", "budgets.b: one of usd and tokens must be given, and not both"),
        ("usd = -1", "budgets.b: usd is -1; it must be a number of dollars above 0"),
        ("usd = nan", "budgets.b.usd is nan: Input should be a finite number"),
        ('usd = "much"', "budgets.b.usd is 'much': Input should be a valid decimal"),
        ("tokens = 0", "budgets.b: tokens is 0; it must be 1 or more"),
        ("usd = 1\nperiod = 'week'", "budgets.b: period is 'week'; it must be one of total, day, month"),
        ("usd = 1\nmode = 'firm'", "budgets.b: mode is 'firm'; it must be one of hard, soft"),
        ("usd = 1\ntag = 'team'", "budgets.b: tag is 'team'; write 'name=value', or 'name=*' for each value"),
        ("usd = 1\nmodel = 'a*b'", "budgets.b: model is 'a*b'; a '*' is allowed only at its end"),
        ("usd = 1\nmodel = ''", "budgets.b: model is ''; it must be a text"),
        ("usd = 1\nlimit = 2", "unknown setting 'budgets.b.limit'"),
    ],
)
def test_bad_budgets_in_a_file_are_named(tmp_path: Path, table: str, said: str) -> None:
    file = tmp_path / "specclient.toml"
    file.write_text(f"[budgets.b]\n{table}\n")
    with pytest.raises(ConfigurationError) as caught:
        load(file)
    assert str(caught.value).startswith(f"{file}: {said}")


def test_budgets_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "specclient.toml"
    file.write_text('[budgets.b]\nusd = 0.1\nperiod = "day"\ntag = "team=search"\n[budgets.t]\ntokens = 5\n')
    assert load(file).budget_list() == [
        Budget(name="b", usd=Decimal("0.1"), period="day", tag="team=search"),
        Budget(name="t", tokens=5),
    ]


@pytest.mark.parametrize(
    ("nano", "text"),
    [
        (0, "$0.00"),
        (5 * 10**9, "$5.00"),
        (250, "$0.00000025"),
        (1_234_500_000_000, "$1,234.50"),
        (-(10**8), "-$0.10"),
    ],
)
def test_dollars_are_told_exactly(nano: int, text: str) -> None:
    assert exact_dollars(nano) == text


PRICES = Prices(
    Settings.model_validate(
        {
            "prices": {
                "mine/m": {"input": 1, "output": 10},
                "mine/timed": {"per_gpu_second": "0.5"},
            },
            "local": {"device_cost_per_hour": 3600},
        }
    )
)
MESSAGES = [{"role": "user", "content": "How are you?"}]


def sized(method: ApiMethod = CHAT, model: str = "m", past: Estimator | None = None, **params: Any) -> Any:
    """Return what a request is taken to come to, and its prompt's tokens with their margin."""
    body = params.pop("extra_body", {})
    request = Request(method, model, params, options=PerCallOptions(body=body))
    provider = "local" if model == "big" else "mine"
    route = Decision(chosen=f"{provider}/{model}", provider=provider, model=model)
    return bound_of(request, route, PRICES, past or Estimator(), None)


@pytest.mark.parametrize(
    ("given", "completion"),
    [
        ({"max_tokens": 50}, 50),
        ({"max_tokens": 50, "max_completion_tokens": 70}, 70),
        ({"max_tokens": 50, "n": 3}, 150),
        ({"max_tokens": 50, "extra_body": {"max_tokens": 60}}, 60),
        ({"max_tokens": None}, ANSWER_TOKENS),
        ({}, ANSWER_TOKENS),
    ],
)
def test_answers_are_bounded_by_what_the_request_allows(given: dict[str, Any], completion: int) -> None:
    size = sized(messages=MESSAGES, **given)
    assert size.completion == completion
    assert size.bounded is (completion != ANSWER_TOKENS)
    assert size.nano == size.prompt * 1_000 + completion * 10_000


def test_a_prompt_that_can_only_be_estimated_has_a_margin() -> None:
    count = count_prompt(Request(CHAT, "m", {"messages": MESSAGES}), "m")
    assert count.estimated
    assert sized(messages=MESSAGES).prompt == -(-count.tokens * 5 // 4)
    assert sized(COMPLETION, prompt=[1] * 1000).prompt == 1000  # token ids are counted, not estimated


def test_a_prediction_may_be_billed_on_top_of_the_answer() -> None:
    guess = {"type": "content", "content": "one two three four five six seven"}
    plain, predicted = (
        sized(messages=MESSAGES, max_tokens=50, **more) for more in ({}, {"prediction": guess})
    )
    assert predicted.completion >= plain.completion + 7


def test_other_operations_are_bounded_by_their_own_parameters() -> None:
    assert sized(RESPONSE, input="x", max_output_tokens=9).completion == 9
    assert sized(COMPLETION, prompt="x", max_tokens=9, best_of=4).completion == 36
    embedded = sized(EMBEDDING, input="x y z")
    assert (embedded.completion, embedded.bounded) == (0, True)


def test_what_is_not_counted_in_text_cannot_be_told() -> None:
    image = ApiMethod(name="images.generate", verb="POST", path="/images/generations", metered=True)
    assert (sized(image, prompt="x").nano, sized(image, prompt="x").priced) == (None, True)
    assert sized(image, model="free", prompt="x").priced is False


def test_engine_time_is_told_by_the_pace_of_earlier_calls() -> None:
    past = Estimator()
    assert sized(model="big", messages=MESSAGES, max_tokens=100).nano is None
    for tokens in (10, 20):
        route = Decision(chosen="local/big", provider="local", model="big")
        past.observe(
            Call(
                id=str(tokens),
                started_at=datetime.now(UTC),
                operation="chat",
                model="local/big",
                route=route,
                status="ok",
                usage=Usage(prompt=1, completion=tokens),
                latency_s=1.0,
                engine_s=tokens / 100,
            )
        )
    size = sized(model="big", messages=MESSAGES, max_tokens=100, past=past)
    assert size.nano == pytest.approx(10**9, rel=0.03)  # a second of a machine at a dollar a second
    longest_and_a_quarter = 25
    assert sized(model="big", messages=MESSAGES, past=past).completion == longest_and_a_quarter
