"""The task and the length of a prompt are classified for any request."""

from __future__ import annotations

import gzip
import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from paths import SHARED_DATA

from specclient.routing.choose.task_classifier import (
    BYTES_PER_TOKEN,
    LONG_BYTES,
    classify_task,
    summarize_prompt,
)
from specclient.types import inference_methods
from specclient.types.request import Request

TEXT = (
    "The committee met on Tuesday to discuss the harbour, and nobody could say who had paid for the lamps. "
)
CODE = "def area(radius):\n    return 3.14159 * radius ** 2\n"


def chat(*texts, **params):
    messages = [{"role": "user", "content": text} for text in texts]
    return Request(inference_methods.CHAT, "auto", {"messages": messages, **params})


def classified(text):
    return classify_task(summarize_prompt(chat(text)))


@pytest.mark.parametrize(
    ("task", "prompt"),
    [
        ("chat", "Hello!"),
        ("chat", "Who wrote Faust, and when?"),
        ("chat", "Write a poem about the sea; use the word 'return' (twice)."),
        ("chat", "Explain why people return to the places where they grew up."),
        ("chat", "What is 17 × 23?"),
        ("chat", "Translate into French: good morning."),
        ("code", "Write a Python script that renames files."),
        ("code", "Write a function that tells whether a number is prime."),
        ("code", "Why does this fail?\n```\nprint(x[1])\n```"),
        ("code", CODE + "\nAdd a docstring."),
        ("code", "import json\n\n\ndef load(path):\n"),
        ("code", "Fix this SQL: SELECT name, count(*) FROM users"),
        ("code", "function add(a, b) {\n  return a + b;\n}\nPort this to Rust."),
        ("code", "Implement an LRU cache class in Java with unit tests."),
        ("document", "Summarize the following article:\n" + 10 * TEXT),
        ("document", "Extract all names from this report.\n" + 12 * TEXT),
        ("document", "Translate this contract into German:\n" + 8 * TEXT),
        ("document", 40 * TEXT + "\n\nWho paid for the lamps?"),
        ("long_context", 400 * TEXT + "\n\nWho paid for the lamps?"),
        ("long_context", 800 * CODE + "\n\nFind the bug."),
    ],
)
def test_each_kind_of_prompt_is_classified(task, prompt):
    assert classified(prompt) == task


def test_the_last_user_message_decides_the_task():
    request = Request(
        inference_methods.CHAT,
        "auto",
        {
            "messages": [
                {"role": "system", "content": "You are a Python expert. " + CODE},
                {"role": "user", "content": CODE + "What does this function do?"},
                {"role": "assistant", "content": CODE},
                {"role": "user", "content": "Thanks! How are you today?"},
            ]
        },
    )
    assert classify_task(summarize_prompt(request)) == "chat"


@pytest.mark.parametrize(
    ("method", "params", "task"),
    [
        (inference_methods.COMPLETION, {"prompt": CODE}, "code"),
        (inference_methods.COMPLETION, {"prompt": [CODE, CODE]}, "code"),
        (
            inference_methods.RESPONSE,
            {"input": "Write a Python script.", "instructions": "Be short."},
            "code",
        ),
        (
            inference_methods.RESPONSE,
            {"input": [{"role": "user", "content": [{"type": "input_text", "text": CODE}]}]},
            "code",
        ),
        (
            inference_methods.CHAT,
            {
                "messages": [
                    {
                        "role": "user",
                        "content": [
                            {"type": "text", "text": "Summarize this."},
                            {"type": "file", "file": {"file_data": "A" * 100_000}},
                        ],
                    }
                ]
            },
            "document",
        ),
        (inference_methods.COMPLETION, {"prompt": list(range(20_000))}, "long_context"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_every_form_of_prompt_is_read(method, params, task):
    assert classify_task(summarize_prompt(Request(method, "auto", params))) == task


def test_sizes_are_in_bytes_and_images_count_by_their_token_cost():
    assert summarize_prompt(chat("x" * 4000)).size == pytest.approx(4000, abs=50)
    assert summarize_prompt(chat("ü" * 4000)).size == pytest.approx(8000, abs=50)
    assert summarize_prompt(chat(*["x" * 100] * 1000)).size == pytest.approx(
        116_000, rel=0.02
    )  # more than the classifier reads
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 1_000_000}}
    request = Request(inference_methods.CHAT, "auto", {"messages": [{"role": "user", "content": [picture]}]})
    assert summarize_prompt(request).size < 5000
    tool = {"type": "function", "function": {"name": "f", "description": "d" * 1000, "parameters": {}}}
    assert summarize_prompt(chat("hi", tools=[tool])).size > summarize_prompt(chat("hi")).size + 1000


json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=20,
)


@given(
    method=st.sampled_from(
        [
            inference_methods.CHAT,
            inference_methods.COMPLETION,
            inference_methods.RESPONSE,
            inference_methods.EMBEDDING,
        ]
    ),
    params=st.dictionaries(
        st.sampled_from(["messages", "prompt", "input", "instructions", "tools", "response_format"]),
        json_like,
    ),
)
def test_no_request_content_raises(method, params):
    gist = summarize_prompt(Request(method, "auto", params))
    assert gist.size >= 0
    assert len(gist.sample) <= 1300
    assert classify_task(gist) in ("chat", "code", "document", "long_context")


@given(st.text(min_size=1, max_size=3000))
def test_long_prompts_are_long_context_whatever_their_content(text):
    assert classified(text * (LONG_BYTES // len(text) + 1)) == "long_context"


@pytest.mark.skipif(not SHARED_DATA.is_dir(), reason="needs HumanEval and Spec-Bench in ../shared/data")
def test_published_prompts_are_classified():
    with gzip.open(SHARED_DATA / "HumanEval.jsonl.gz", "rt") as lines:
        programs = Counter(classified(json.loads(line)["prompt"]) for line in lines)
    assert programs["code"] / programs.total() >= 0.98
    questions = [
        json.loads(line) for line in (SHARED_DATA / "spec_bench_question.jsonl").read_text().splitlines()
    ]
    expected = {
        "coding": "code", "summarization": "document", "rag": "document", "qa": "chat", "translation": "chat",
        "math_reasoning": "chat", "writing": "chat", "roleplay": "chat", "humanities": "chat", "stem": "chat",
    }  # fmt: skip
    for category, task in expected.items():
        found = Counter(classified(q["turns"][0]) for q in questions if q["category"] == category)
        assert found[task] / found.total() >= 0.9, (category, found)


@pytest.mark.skipif(not SHARED_DATA.is_dir(), reason="needs Spec-Bench in ../shared/data")
def test_estimated_tokens_are_near_the_tokenizers_count(monkeypatch):
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(SHARED_DATA.parent / "tiktoken"))
    from specclient import tokens

    off = []
    for line in (SHARED_DATA / "spec_bench_question.jsonl").read_text().splitlines():
        request = chat(json.loads(line)["turns"][0])
        off.append(
            summarize_prompt(request).size / BYTES_PER_TOKEN / tokens.count_prompt(request, "gpt-4o").tokens
        )
    off.sort()
    assert 0.8 < off[len(off) // 2] < 1.25
    assert off[len(off) // 20] > 0.6
    assert off[-len(off) // 20] < 1.6
