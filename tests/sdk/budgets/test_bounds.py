"""Budget validation, the calls that a budget counts, and the upper bound of a call's cost and tokens."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specclient import Budget, ConfigurationError
from specclient.budgets.answers import ANSWER_TOKENS
from specclient.budgets.bounds import bound_of
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
        ({"judge": True}, False),
        ({"provider": "openai", "model": "gpt-4.1", "tag": "env=prod", "session": "*"}, True),
        ({"provider": "openai", "model": "gpt-4.1", "tag": "env=dev", "session": "*"}, False),
    ],
)
def test_the_calls_that_a_budget_counts(given_: dict[str, Any], fits: bool) -> None:
    assert (Budget(name="b", usd=1, **given_).subject(SCOPE) is not None) is fits


def test_a_budget_of_the_judge_counts_its_calls_alone_and_others_count_them_too() -> None:
    judge = SCOPE._replace(tags={}, by_judge=True)
    counted = [Budget(name="b", usd=1, **each).subject(judge) for each in ({}, {"judge": True})]
    assert counted == ["", ""]
    tagged = SCOPE._replace(tags={"quality_judge": "1"})
    assert Budget(name="b", usd=1, judge=True).subject(tagged) is None


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("", "budgets.b: one of usd and tokens must be given, and not both"),
        ("usd = 1\ntokens = 1", "budgets.b: one of usd and tokens must be given, and not both"),
        ("usd = -1", "budgets.b: usd is -1; it must be a number of dollars above 0"),
        ("usd = nan", "budgets.b.usd is nan: it must be a finite number"),
        ('usd = "much"', "budgets.b.usd is 'much': it must be a number"),
        ("tokens = 0", "budgets.b: tokens is 0; it must be 1 or more"),
        ("usd = 1\nperiod = 'week'", "budgets.b: period is 'week'; it must be one of total, day, month"),
        ("usd = 1\nmode = 'firm'", "budgets.b: mode is 'firm'; it must be one of hard, soft"),
        ("usd = 1\ntag = 'team'", "budgets.b: tag is 'team'; write 'name=value', or 'name=*' for each value"),
        ("usd = 1\nmodel = 'a*b'", "budgets.b: model is 'a*b'; a '*' is allowed only at its end"),
        ("usd = 1\nmodel = ''", "budgets.b: model is ''; it must be a text"),
        ("usd = 1\njudge = 'yes please'", "budgets.b.judge is 'yes please': it must be a valid boolean"),
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
                "mine/flat": {"per_call": "0.05"},
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
    assert size.limit == (ANSWER_TOKENS if completion == ANSWER_TOKENS else None)
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
    assert (embedded.completion, embedded.limit) == (0, None)


def test_an_operation_without_text_tokens_has_no_bound() -> None:
    video = ApiMethod(name="videos.create", verb="POST", path="/videos", metered=True)
    bound = call_bound(video, prompt="x")
    assert (bound.nano, bound.priced) == (None, True)
    assert bound.unbounded == "the maximum cost of a call of videos.create is not known in advance"
    assert call_bound(video, model="free", prompt="x").priced is False
    each = call_bound(video, model="flat", prompt="x")
    assert (each.nano, each.unbounded) == (50_000_000, None)  # a price for each call is its bound


def test_engine_cost_is_bounded_by_the_speed_of_earlier_calls() -> None:
    past = Estimator()
    first = call_bound(model="big", messages=MESSAGES, max_tokens=100)
    assert first.nano == 25_000_000_000 + first.prompt * 25_000_000  # a slow pace is assumed
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


def test_an_answer_of_an_engine_without_a_limit_counts_as_the_context() -> None:
    route = Decision(chosen="local/big", provider="local", model="big")
    for operation, params, completion, limit in (
        (CHAT, {"messages": MESSAGES}, 1024, None),
        (CHAT, {"messages": MESSAGES, "n": 3}, 3072, None),
        (COMPLETION, {"prompt": "x"}, 16, 16),
    ):
        request = Request(operation, "big", params)
        bound = bound_of(request, route, PRICES, Estimator(), None, engine_context=lambda: 1024)
        assert (bound.completion, bound.limit) == (completion, limit)
    request = Request(CHAT, "big", {"messages": MESSAGES})
    unknown = bound_of(request, route, PRICES, Estimator(), None, engine_context=lambda: None)
    assert (unknown.completion, unknown.limit) == (ANSWER_TOKENS, ANSWER_TOKENS)


def test_embeddings_of_an_engine_are_bounded_by_the_pace_of_the_slowest_call() -> None:
    past = Estimator()
    first = call_bound(EMBEDDING, "big", past, input=[5] * 1000)
    assert first.nano == 25_000_000_000  # 0.025 s a token before the first call, at a dollar a second
    for engine_s in (1.0, 2.0, 0.5):
        past.observe(
            Call(
                id=str(engine_s),
                started_at=datetime.now(UTC),
                operation="embedding",
                model="local/big",
                route=Decision(chosen="local/big", provider="local", model="big"),
                status="ok",
                usage=Usage(prompt=1000, completion=0),
                latency_s=3.0,
                engine_s=engine_s,
            )
        )
    slowest_plus_a_quarter = 2_500_000_000  # at one dollar a second
    assert call_bound(EMBEDDING, "big", past, input=[5] * 1000).nano == pytest.approx(slowest_plus_a_quarter)


@pytest.mark.parametrize(
    ("method", "given", "completion"),
    [
        (CHAT, {"max_completion_tokens": 0, "max_tokens": 100_000}, 100_000),
        (CHAT, {"max_completion_tokens": 100_000, "max_tokens": 1}, 100_000),
        (CHAT, {"max_completion_tokens": 0}, ANSWER_TOKENS),  # servers take 0 as no limit
        (CHAT, {"max_tokens": -1}, ANSWER_TOKENS),
        (CHAT, {"max_tokens": 5, "n_predict": 9000}, 9000),
        (CHAT, {"n_predict": 1}, ANSWER_TOKENS),  # most servers ignore it
        (CHAT, {"n_predict": 9000}, 9000),
        (CHAT, {"max_tokens": 5, "extra_body": {"generationConfig": {"maxOutputTokens": 9000}}}, 9000),
        (CHAT, {"max_tokens": 5, "extra_body": {"generation_config": {"max_output_tokens": "9000"}}}, 9000),
        (CHAT, {"max_tokens": 5, "extra_body": {"candidateCount": 8}}, 40),
        (CHAT, {"max_tokens": 5, "extra_body": {"generationConfig": {"candidate_count": 8}}}, 40),
        (CHAT, {"max_tokens": 5, "extra_body": {"options": {"num_predict": 900}}}, 900),
        (CHAT, {"max_tokens": "700"}, 700),
        (CHAT, {"max_tokens": 700.0, "n": "3"}, 2100),
        (CHAT, {"n": 5}, 5 * ANSWER_TOKENS),
        (COMPLETION, {"prompt": ["x"] * 500, "max_tokens": 1000}, 500_000),
        (COMPLETION, {"prompt": [[1, 2], [3]], "max_tokens": 10, "n": 3}, 60),
        (COMPLETION, {"prompt": [1, 2, 3], "max_tokens": 10}, 10),
        (COMPLETION, {"prompt": ["x", "y"], "max_tokens": 10, "n": 2, "best_of": 4}, 160),
        (COMPLETION, {"prompt": "x", "max_tokens": 0}, 0),
    ],
)
def test_the_completion_is_bounded_for_every_choice_by_the_largest_limit(
    method: ApiMethod, given: dict[str, Any], completion: int
) -> None:
    more = {"messages": MESSAGES} if method is CHAT else {}
    assert call_bound(method, **more, **given).completion == completion


@pytest.mark.parametrize(
    ("messages", "tools"),
    [
        ([{"role": "user", "content": "xqzjkvwpbg" * 300}], None),
        ([{"role": "user", "content": [{"type": "text", "text": "xqzjkvwpbg" * 300}]}], None),
        ([{"role": "user", "content": "\U0001f468\u200d\U0001f469" * 400}], None),
        ([{"role": "user", "content": "x", "name": "q" * 3000}], None),
        (MESSAGES, [{"type": "function", "function": {"name": "f", "description": "zkqj" * 800}}]),
        ([{"role": "tool", "tool_call_id": "x", "content": "data:" + "QUJD" * 800}], None),
        ([*MESSAGES, *[{"role": "user", "content": ""}] * 500], None),
    ],
)
def test_a_strict_bound_of_an_estimated_prompt_is_at_least_its_bytes(messages: Any, tools: Any) -> None:
    """A token has at least one byte, so no text has more tokens than bytes."""
    request = Request(
        CHAT, "m", {"messages": messages, "max_tokens": 1, **({"tools": tools} if tools else {})}
    )
    route = Decision(chosen="mine/m", provider="mine", model="m")
    loose, strict = (
        bound_of(request, route, PRICES, Estimator(), None, strict=strict) for strict in (False, True)
    )
    texts = [str(m.get("content")) if isinstance(m["content"], str) else m["content"][0]["text"]
             for m in messages] + [str(m.get("name", "")) for m in messages]  # fmt: skip
    least = sum(len(text.encode()) for text in texts) + (3200 if tools else 0)
    assert strict.prompt >= least
    assert strict.prompt >= loose.prompt or least < loose.prompt
    within = bound_of(
        Request(CHAT, "m", {"messages": [{"role": "user", "content": "x" * 10**6}], "max_tokens": 1}),
        Decision(chosen="openai/gpt-9", provider="openai", model="gpt-4o"), PRICES, Estimator(), "openai",
        strict=True,
    )  # fmt: skip
    assert within.prompt <= 128_000  # a longer prompt is refused by the provider


def test_texts_of_extra_fields_count_as_their_bytes_in_a_strict_bound() -> None:
    body = {"documents": [{"text": "xqzj" * 500}]}
    request = Request(CHAT, "m", {"messages": MESSAGES, "max_tokens": 1}, options=PerCallOptions(body=body))
    route = Decision(chosen="mine/m", provider="mine", model="m")
    assert bound_of(request, route, PRICES, Estimator(), None, strict=True).prompt >= 2000


@pytest.mark.parametrize(
    ("method", "given"),
    [
        (RESPONSE, {"input": "x", "previous_response_id": "resp_1"}),
        (RESPONSE, {"input": "x", "conversation": "conv_1"}),
        (RESPONSE, {"prompt": {"id": "pmpt_1"}}),
        (RESPONSE, {"input": [{"type": "item_reference", "id": "msg_1"}]}),
        (RESPONSE, {"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}]}),
        (CHAT, {"messages": [{"role": "user", "content": [{"type": "file", "file": {"file_id": "f"}}]}]}),
        (CHAT, {"messages": [{"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}]}),
        (CHAT, {"messages": [{"role": "assistant", "audio": {"id": "a"}}]}),
    ],
)
def test_what_cannot_be_counted_is_bounded_by_the_context_if_that_is_known(
    method: ApiMethod, given: dict[str, Any]
) -> None:
    unknown = call_bound(method, **given)
    assert "cannot be counted" in (unknown.unbounded or "")
    request = Request(method, "gpt-4o", given)
    route = Decision(chosen="openai/gpt-4o", provider="openai", model="gpt-4o")
    known = bound_of(request, route, Prices(Settings()), Estimator(), "openai")
    assert (known.unbounded, known.prompt) == (None, 128_000)


@pytest.mark.parametrize(
    ("method", "given"),
    [
        (RESPONSE, {"input": "x", "tools": [{"type": "web_search"}]}),
        (RESPONSE, {"input": "x", "tools": [{"type": "function", "name": "f"}, {"type": "mcp"}]}),
        (CHAT, {"messages": MESSAGES, "web_search_options": {}}),
        (CHAT, {"messages": MESSAGES, "tools": [{"googleSearch": {}}]}),
        (CHAT, {"messages": MESSAGES, "extra_body": {"fallbacks": [{"model": "m-larger"}]}}),
        (
            CHAT,
            {"messages": MESSAGES, "extra_body": {"context_management": {"edits": [{"type": "compact_1"}]}}},
        ),
        (CHAT, {"messages": MESSAGES, "web_search_options": {"user_location": None}}),
        (CHAT, {"messages": MESSAGES, "extra_body": {"plugins": [{"id": "web"}]}}),
        (CHAT, {"messages": MESSAGES, "extra_body": {"search_parameters": {"mode": "on"}}}),
        (CHAT, {"messages": MESSAGES, "extra_body": {"enable_search": True}}),
        (CHAT, {"messages": MESSAGES, "extra_body": {"mcpServers": [{"name": "x"}]}}),
        (CHAT, {"messages": MESSAGES, "service_tier": "priority"}),
        (CHAT, {"messages": MESSAGES, "extra_body": {"serviceTier": "PRIORITY"}}),
        (CHAT, {"messages": MESSAGES, "extra_body": {"speed": "fast"}}),
        (CHAT, {"messages": MESSAGES, "extra_body": {"inference_geo": "us"}}),
        (CHAT, {"messages": MESSAGES, "tools": [{"functionDeclarations": [], "googleSearch": {}}]}),
        (CHAT, {"messages": MESSAGES, "tools": [{"type": "function", "function": {}, "url_context": {}}]}),
        (CHAT, {"model": "gpt-4o-search-preview", "messages": MESSAGES}),
        (CHAT, {"model": "some/model:online", "messages": MESSAGES}),
    ],
)
def test_work_that_a_provider_does_by_itself_has_no_bound(method: ApiMethod, given: dict[str, Any]) -> None:
    assert "bill" in (call_bound(method, **given).unbounded or "")


@pytest.mark.parametrize(
    "body", [{"models": ["m-large"]}, {"preset": "x"}, {"route": "fallback", "models": ["m"]}]
)
def test_further_models_of_a_request_have_no_known_price(body: dict[str, Any]) -> None:
    bound = call_bound(messages=MESSAGES, max_tokens=5, extra_body=body)
    assert "further models" in (bound.unbounded or "")


@pytest.mark.parametrize(
    "body",
    [
        {"cachedContent": "cachedContents/1"},
        {"cached_content": "cachedContents/1"},
        {"contents": [{"parts": [{"fileData": {"fileUri": "https://example.org/film"}}]}]},
        {"contents": [{"parts": [{"file_data": {"file_uri": "https://example.org/film"}}]}]},
    ],
)
def test_stored_content_in_extra_fields_counts_as_the_context(body: dict[str, Any]) -> None:
    bound = call_bound(messages=MESSAGES, max_tokens=5, extra_body=body)
    assert "cannot be counted" in (bound.unbounded or "")


@pytest.mark.parametrize(
    "body",
    [
        {
            "service_tier": "default",
            "speed": "standard",
            "models": None,
            "plugins": [],
            "enable_search": False,
        },
        {"serviceTier": "standard"},
        {"top_k": 5, "min_p": 0.1, "thinking": {"type": "enabled", "budget_tokens": 1024}},
    ],
)
def test_fields_that_cost_nothing_more_have_a_bound(body: dict[str, Any]) -> None:
    bound = call_bound(messages=MESSAGES, max_tokens=5, extra_body=body)
    assert (bound.unbounded, bound.completion) == (None, 5)


def test_tools_of_the_caller_have_a_bound() -> None:
    tools = [{"type": "function", "function": {"name": "f"}}, {"functionDeclarations": [{"name": "g"}]}]
    clearing = {"context_management": {"edits": [{"type": "clear_thinking_20251015"}, 3]}}
    assert call_bound(messages=MESSAGES, tools=tools, max_tokens=5, extra_body=clearing).unbounded is None


def test_a_prompt_that_is_written_to_a_cache_costs_what_writing_costs() -> None:
    table = {"input": 1, "output": 1, "cache_write": 2}
    prices = Prices(Settings.model_validate({"prices": {"mine/m": table}}))
    route = Decision(chosen="mine/m", provider="mine", model="m")
    marked = [{"role": "user", "content": [{"type": "text", "text": "x", "cache_control": {}}]}]
    plain, cached = (
        bound_of(Request(CHAT, "m", {"messages": each, "max_tokens": 0}), route, prices, Estimator(), None)
        for each in (MESSAGES, marked)
    )
    answer = 1000 * plain.completion
    assert plain.nano == plain.prompt * 1000 + answer
    assert cached.nano == cached.prompt * 2000 + answer
    automatic = PerCallOptions(body={"cache_control": {"type": "ephemeral"}})
    request = Request(CHAT, "m", {"messages": MESSAGES, "max_tokens": 0}, options=automatic)
    whole = bound_of(request, route, prices, Estimator(), None)
    assert whole.nano == whole.prompt * 2000 + answer


def test_texts_in_fields_outside_the_api_count_as_prompt() -> None:
    """A provider may take them into the prompt: ``system`` of Anthropic's, ``documents`` of vLLM's."""
    plain, more = (
        call_bound(messages=MESSAGES, max_tokens=9, extra_body=body)
        for body in ({}, {"system": "word " * 1000, "documents": [{"text": "word " * 1000}]})
    )
    assert more.prompt >= plain.prompt + 2000


def test_an_image_of_unknown_size_counts_as_the_largest() -> None:
    def prompt(url: str) -> int:
        parts = [{"type": "image_url", "image_url": {"url": url}}]
        bound = call_bound(model="gpt-4o-mini", messages=[{"role": "user", "content": parts}], max_tokens=9)
        return int(bound.prompt)

    assert prompt("https://example.org/a.png") >= 2833 + 8 * 5667  # eight tiles, the most there are


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.just(10**400) | st.floats(allow_nan=False) | st.text()
    | st.sampled_from(["auto", "file", "input_audio", "web_search", "image_url", "3", "high"]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(["type", "content", "role", "image_url", "audio", "text", "url", "source", "x"]),
        inner,
        max_size=3,
    ),
    max_leaves=8,
)  # fmt: skip
NAMES = (
    "messages", "prompt", "input", "tools", "n", "best_of", "max_tokens", "max_completion_tokens",
    "modalities", "max_output_tokens", "audio", "prediction", "size", "quality", "frame_count",
    "partial_images", "image", "speed", "file", "plugins", "previous_response_id", "instructions",
    "response_format",
)  # fmt: skip


@given(
    method=st.sampled_from(
        [CHAT, COMPLETION, RESPONSE, EMBEDDING]
        + [
            ApiMethod(name=name, verb="POST", path="/x", metered=True)
            for name in (
                "images.generate",
                "images.edit",
                "audio.speech.create",
                "audio.transcriptions.create",
            )
        ]
    ),
    params=st.dictionaries(st.sampled_from(NAMES), JSON, max_size=8),
    extra=st.dictionaries(st.sampled_from(NAMES), JSON, max_size=3),
)
@settings(max_examples=300, deadline=None)
def test_any_parameters_have_a_bound(method: ApiMethod, params: Any, extra: Any) -> None:
    """A bound is computed before the provider has refused an invalid request."""
    bound = call_bound(method, extra_body=extra, **params)
    assert bound.prompt >= 0
    assert bound.completion >= 0
    assert bound.nano is None or 0 <= bound.nano <= 10**17


def test_the_bound_of_priority_traffic_on_vertex_has_its_price() -> None:
    model = "gemini-3.5-flash"
    route = Decision(chosen=f"vertex/{model}", provider="vertex", model=model)
    asked = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1000}

    def nano(**more: str) -> int:
        request = Request(CHAT, "vertex/gemini-3.5-flash", {**asked, **more})
        found = bound_of(request, route, Prices(Settings()), Estimator(), "vertex").nano
        assert found is not None
        return found

    assert nano(service_tier="priority") == pytest.approx(1.8 * nano(), rel=1e-6)
