"""Budget validation, the calls that a budget counts, and the upper bound of a call's cost and tokens."""

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
def test_the_calls_that_a_budget_counts(given_: dict[str, str], fits: bool) -> None:
    assert (Budget(name="b", usd=1, **given_).subject(SCOPE) is not None) is fits


@pytest.mark.parametrize(
    ("table", "message"),
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
def test_errors_of_configured_budgets_name_the_setting(tmp_path: Path, table: str, message: str) -> None:
    file = tmp_path / "specclient.toml"
    file.write_text(f"[budgets.b]\n{table}\n")
    with pytest.raises(ConfigurationError) as caught:
        load(file)
    assert str(caught.value).startswith(f"{file}: {message}")


def test_budgets_are_read_from_a_configuration_file(tmp_path: Path) -> None:
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
def test_dollars_are_formatted_exactly(nano: int, text: str) -> None:
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


def call_bound(
    method: ApiMethod = CHAT, model: str = "m", past: Estimator | None = None, **params: Any
) -> Any:
    """Return the upper bound of the cost and the tokens of a request."""
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
def test_the_completion_is_bounded_by_the_limits_of_the_request(
    given: dict[str, Any], completion: int
) -> None:
    size = call_bound(messages=MESSAGES, **given)
    assert size.completion == completion
    assert size.bounded is (completion != ANSWER_TOKENS)
    assert size.nano == size.prompt * 1_000 + completion * 10_000


def test_an_estimated_prompt_count_gets_a_margin_of_a_quarter() -> None:
    count = count_prompt(Request(CHAT, "m", {"messages": MESSAGES}), "m")
    assert count.estimated
    assert call_bound(messages=MESSAGES).prompt == -(-count.tokens * 5 // 4)
    assert call_bound(COMPLETION, prompt=[1] * 1000).prompt == 1000  # token ids are counted, not estimated


def test_a_prediction_adds_to_the_bound_of_the_completion() -> None:
    guess = {"type": "content", "content": "one two three four five six seven"}
    plain, predicted = (
        call_bound(messages=MESSAGES, max_tokens=50, **more) for more in ({}, {"prediction": guess})
    )
    assert predicted.completion >= plain.completion + 7


def test_responses_completions_and_embeddings_are_bounded_by_their_own_parameters() -> None:
    assert call_bound(RESPONSE, input="x", max_output_tokens=9).completion == 9
    assert call_bound(COMPLETION, prompt="x", max_tokens=9, best_of=4).completion == 36
    embedded = call_bound(EMBEDDING, input="x y z")
    assert (embedded.completion, embedded.bounded) == (0, True)


def test_an_operation_without_text_tokens_has_no_bound() -> None:
    image = ApiMethod(name="images.generate", verb="POST", path="/images/generations", metered=True)
    assert (call_bound(image, prompt="x").nano, call_bound(image, prompt="x").priced) == (None, True)
    assert call_bound(image, model="free", prompt="x").priced is False


def test_engine_cost_is_bounded_by_the_speed_of_earlier_calls() -> None:
    past = Estimator()
    assert call_bound(model="big", messages=MESSAGES, max_tokens=100).nano is None
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
    size = call_bound(model="big", messages=MESSAGES, max_tokens=100, past=past)
    assert size.nano == pytest.approx(10**9, rel=0.03)  # one second of the engine at one dollar a second
    longest_plus_a_quarter = 25
    assert call_bound(model="big", messages=MESSAGES, past=past).completion == longest_plus_a_quarter
