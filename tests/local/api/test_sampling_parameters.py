"""Sampling parameters of local models, by their API names, and their effect on the output."""

from __future__ import annotations

import json
import re

import pytest

from specclient import BadRequestError, OpenAI, UnsupportedParameterError
from specclient.config import Settings
from specclient.errors import ContextOverflowError

MESSAGES = [{"role": "user", "content": "hi"}]


@pytest.fixture(scope="module")
def client(checkpoint):
    folder, other = str(checkpoint(eos_token_id=None)), str(checkpoint(eos_token_id=None, seed=4))
    models = {
        "pair": {"path": folder, "draft": other},
        "two": {"path": folder, "draft": [other, folder], "context": 96},
        "ends": {"path": str(checkpoint()), "draft": str(checkpoint(seed=4))},
    }
    local = {"threads": 1, "models": models}
    with OpenAI(config=Settings.model_validate({"ledger": "off", "local": local})) as made:
        yield made


def complete(client, prompt="def f", model="pair", **params):
    beside = {"temperature": 0, "max_tokens": 12, "extra_body": {"return_token_ids": True}} | params
    beside["extra_body"] = {"return_token_ids": True} | beside["extra_body"]
    return client.completions.create(model=f"local/{model}", prompt=prompt, **beside)


def tokens(client, **params):
    return complete(client, **params).choices[0].token_ids


def test_penalties_reduce_repetition(client):
    free = tokens(client, max_tokens=40)
    assert len(set(free)) < 40, "without repeats the penalties would have nothing to do"
    for name in ("frequency_penalty", "presence_penalty"):
        penalised = tokens(client, max_tokens=40, **{name: 2.0})
        assert len(set(penalised)) > len(set(free)), name
        assert tokens(client, max_tokens=40, **{name: 0}) == free
    repeated = tokens(client, max_tokens=40, extra_body={"repetition_penalty": 50.0})
    assert len(set(repeated)) > len(set(free))
    assert repeated == tokens(client, max_tokens=40, extra_body={"specclient": {"repetition_penalty": 50.0}})


def test_logit_bias_forbids_or_forces_tokens(client):
    first = tokens(client)[0]
    assert first not in tokens(client, logit_bias={str(first): -100})
    assert set(tokens(client, logit_bias={"77": 100})) == {77}


def test_truncating_parameters_keep_the_most_likely_tokens(client):
    greedy, free = tokens(client), tokens(client, temperature=1.5, seed=3)
    assert greedy != free
    for cut in ({"min_p": 1.0}, {"top_k": 1}):
        assert tokens(client, temperature=1.5, seed=3, extra_body=cut) == greedy, cut
    typical = tokens(client, temperature=1.5, seed=3, extra_body={"typical_p": 1e-6})
    assert typical != free
    assert tokens(client, temperature=1.5, seed=3, extra_body={"typical_p": 1.0, "top_k": -1}) == free


def test_overflow_slide_continues_an_answer_beyond_the_context(client):
    """The option that the error message recommends works."""
    with pytest.raises(ContextOverflowError, match="overflow='slide'"):
        tokens(client, model="two", max_tokens=100)
    slid = tokens(client, model="two", max_tokens=100, extra_body={"specclient": {"overflow": "slide"}})
    assert len(slid) == 100
    assert slid[:90] == tokens(client, model="two", max_tokens=90)


def test_stop_token_ids_min_tokens_and_bad_words(client):
    free = complete(client).choices[0]
    stopped = complete(client, extra_body={"stop_token_ids": [free.token_ids[3]]}).choices[0]
    end = free.token_ids.index(free.token_ids[3])
    assert (stopped.finish_reason, stopped.token_ids) == ("stop", free.token_ids[: end + 1])
    later = complete(client, extra_body={"stop_token_ids": [free.token_ids[3]], "min_tokens": 9}).choices[0]
    assert len(later.token_ids) >= 9
    word = free.text.strip()[:1]
    assert word not in complete(client, extra_body={"bad_words": [word]}).choices[0].text
    forced = complete(client, model="ends", logit_bias={"1": 100}, extra_body={"min_tokens": 5})
    assert len(forced.choices[0].token_ids) == 6


def test_every_drafting_option_gives_the_same_greedy_answer(client):
    plain, seen = tokens(client, extra_body={"specclient": {"method": "plain"}}), {}
    ways = {
        "draft": {"draft_length": 2},
        "tree": {"draft_tree": [2, 2], "draft_length": 2},
        "grow": {"draft_tree": "grow"},
        "step": {"draft_length": "step"},
        "ngram": {"method": "ngram"},
    }
    for name, way in ways.items():
        answer = complete(client, extra_body={"specclient": way})
        assert answer.choices[0].token_ids == plain, name
        seen[name] = answer.meta.speculation
    assert {name: s.method for name, s in seen.items() if s.method != "draft"} == {"ngram": "ngram"}
    assert seen["tree"].drafted > seen["draft"].drafted, (
        "a tree of widths 2, 2 has six drafted tokens per round"
    )
    both = complete(client, model="two")
    assert both.choices[0].token_ids == plain
    assert both.meta.speculation.method == "union"


def test_a_request_chooses_how_chains_are_verified(client):
    """Both rules accept drafted tokens; a seed draws other tokens by each. A block is the default."""
    answers = {}
    for rule in (None, "block", "token"):
        own = {} if rule is None else {"verification": rule}
        found = [
            complete(
                client, temperature=1.0, seed=seed, extra_body={"specclient": {"draft_length": 4, **own}}
            )
            for seed in range(6)
        ]
        assert sum(answer.meta.speculation.accepted for answer in found) > 0
        answers[rule] = [answer.choices[0].token_ids for answer in found]
    assert answers[None] == answers["block"]
    assert answers["block"] != answers["token"]


def test_n_choices_use_consecutive_seeds_and_sum_their_usage(client):
    alone = [tokens(client, temperature=1.0, seed=5 + i) for i in range(3)]
    answer = complete(client, temperature=1.0, seed=5, n=3)
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    assert [choice.token_ids for choice in answer.choices] == alone
    single = complete(client, temperature=1.0, seed=5)
    assert answer.usage.prompt_tokens == single.usage.prompt_tokens
    assert answer.usage.completion_tokens == 36
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + 36
    parts = [single.meta.speculation.steps] + [
        complete(client, temperature=1.0, seed=5 + i).meta.speculation.steps for i in (1, 2)
    ]
    assert answer.meta.speculation.steps == sum(parts)
    assert complete(client, n=2, best_of=2).choices[1].index == 1
    with pytest.raises(UnsupportedParameterError, match=r"best_of=3 .* allowed is 2, or to leave it out"):
        complete(client, n=2, best_of=3)


def test_usage_counts_cached_prompt_tokens(client):
    prompt = "a prompt of its own, read by no other test"
    first, again = complete(client, prompt), complete(client, prompt, n=2)
    assert first.usage.prompt_tokens_details.cached_tokens == 0
    cached = again.usage.prompt_tokens_details.cached_tokens
    assert first.usage.prompt_tokens // 2 < cached < first.usage.prompt_tokens, "once, not once a choice"
    assert {choice.token_ids == first.choices[0].token_ids for choice in again.choices} == {True}
    *_, last = complete(client, prompt, stream=True, stream_options={"include_usage": True})
    assert last.usage == complete(client, prompt).usage


def test_streamed_choices_equal_whole_ones(client):
    whole = client.chat.completions.create(
        model="local/pair", messages=MESSAGES, n=2, seed=1, max_tokens=9, logprobs=True
    )
    assert len({choice.message.content for choice in whole.choices}) == 2
    chunks = list(
        client.chat.completions.create(
            model="local/pair", messages=MESSAGES, n=2, seed=1, max_tokens=9, logprobs=True,
            stream=True, stream_options={"include_usage": True},
        )
    )  # fmt: skip
    *chunks, usage = chunks
    for choice in whole.choices:
        own = [part for chunk in chunks for part in chunk.choices if part.index == choice.index]
        assert own[0].delta.role == "assistant"
        assert "".join(part.delta.content or "" for part in own) == choice.message.content
        assert [part.finish_reason for part in own] == [None] * (len(own) - 1) + ["length"]
        entries = [entry for part in own if part.logprobs for entry in part.logprobs.content]
        assert entries == choice.logprobs.content
    order = [chunk.choices[0].index for chunk in chunks]
    assert order != sorted(order), "the choices' chunks alternate"
    assert usage.usage.completion_tokens == whole.usage.completion_tokens == 18


def test_several_prompts_in_one_call_equal_single_calls(client):
    prompts = ["def f", "x = [", "class A:"]
    alone = [[tokens(client, prompt=p, temperature=1.0, seed=2 + i) for i in (0, 1)] for p in prompts]
    answer = complete(client, prompt=prompts, temperature=1.0, seed=2, n=2)
    assert [choice.index for choice in answer.choices] == list(range(6))
    assert [choice.token_ids for choice in answer.choices] == [ids for pair in alone for ids in pair]
    lengths = [complete(client, prompt=prompt).usage.prompt_tokens for prompt in prompts]
    assert answer.usage.prompt_tokens == sum(lengths)
    ids = [choice.prompt_token_ids for choice in answer.choices[::2]]
    again = complete(client, prompt=ids, temperature=1.0, seed=2, n=2, echo=True)
    assert [c.token_ids for c in again.choices] == [c.token_ids for c in answer.choices]
    assert again.choices[2].text == "x = [" + answer.choices[2].text
    chunks = complete(client, prompt=prompts, stream=True)
    texts = dict.fromkeys(range(3), "")
    for chunk in chunks:
        for part in chunk.choices:
            texts[part.index] += part.text
    assert list(texts.values()) == [complete(client, prompt=prompt).choices[0].text for prompt in prompts]


def test_one_invalid_prompt_rejects_the_whole_call(client):
    with pytest.raises(BadRequestError, match="prompt is 999; allowed is text, or token ids from 0 to 299"):
        complete(client, prompt=[[1, 2], [999]])
    assert tokens(client)  # the engine still works


@pytest.mark.parametrize(
    ("requested", "fits"),
    [
        ({"guided_choice": ["yes", 'n\u00f6 "q"']}, lambda text: text in ("yes", 'n\u00f6 "q"')),
        ({"guided_regex": "[0-9]{3}-[a-c]"}, lambda text: re.fullmatch("[0-9]{3}-[a-c]", text)),
        ({"guided_grammar": 'start: "a" B\nB: /[xy]+z/'}, lambda text: re.fullmatch("a[xy]+z", text)),
        ({"guided_grammar": 'root ::= "a" [xy] "z"'}, lambda text: re.fullmatch("a[xy]z", text)),
        ({"guided_json": '{"enum": [1, 22]}'}, lambda text: json.loads(text) in (1, 22)),
        ({"guided_json": {"const": "k"}}, lambda text: json.loads(text) == "k"),
        ({"structured_outputs": {"choice": ["yes"], "regex": None}}, lambda text: text == "yes"),
        ({"structured_outputs": {"json": {"type": "boolean"}}}, lambda text: text in ("true", "false")),
        ({"structured_outputs": {"regex": "ab"}}, lambda text: text == "ab"),
        ({"structured_outputs": {"grammar": 'start: "g"'}}, lambda text: text == "g"),
        ({"specclient": {"json_schema": {"const": 7}}}, lambda text: text == "7"),
        ({"specclient": {"regex": "c+d"}}, lambda text: re.fullmatch("c+d", text)),
        ({"specclient": {"grammar": 'start: "h"'}}, lambda text: text == "h"),
    ],
    ids=lambda requested: next(iter(requested)) if isinstance(requested, dict) else "",
)
def test_answers_follow_the_requested_format(client, requested, fits):
    sampling = {"temperature": 1.0, "seed": 1, "max_tokens": 60}
    choice = complete(client, model="ends", extra_body=requested, **sampling).choices[0]
    assert fits(choice.text), choice.text
    assert choice.finish_reason == "stop"


@pytest.mark.parametrize(
    ("name", "value"),
    [("guided_regex", "(("), ("guided_grammar", "start: )"), ("guided_json", {"type": "odd"})],
)
def test_an_invalid_format_raises_with_the_parameters_name(client, name, value):
    with pytest.raises(BadRequestError, match=f"{name} cannot be used") as caught:
        complete(client, extra_body={name: value})
    assert caught.value.param == name


def test_a_models_context_setting_reaches_the_engine(client):
    with pytest.raises(ContextOverflowError, match="exceed the context of 96"):
        complete(client, model="two", max_tokens=100)
