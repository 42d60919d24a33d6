"""Text tokens: exact with a cached vocabulary, otherwise marked as an estimate; nothing is downloaded."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import statistics
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import tiktoken
from hypothesis import given
from hypothesis import strategies as st
from paths import SHARED

from specclient.tokens import TokenCount, count_messages, count_prompt, count_text, estimate
from specclient.types.chat import ChatCompletionMessage
from specclient.types.inference_methods import CHAT, COMPLETION, EMBEDDING, RESPONSE
from specclient.types.request import Request

VOCABULARIES = Path(os.environ.get("TIKTOKEN_CACHE_DIR") or SHARED / "tiktoken")
O200K = "fb374d419588a4632f3f557e76b4b70aebbca790"

needs_vocabularies = pytest.mark.skipif(
    not (VOCABULARIES / O200K).is_file(),
    reason=f"tiktoken's vocabularies are not in {VOCABULARIES}; set TIKTOKEN_CACHE_DIR",
)
needs_data = pytest.mark.skipif(
    not (SHARED / "data").is_dir(), reason="HumanEval and Spec-Bench are not beside the repository"
)


@pytest.fixture(autouse=True)
def no_vocabularies(monkeypatch, tmp_path):
    """Use an empty cache folder, and fail the test on any download."""
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr("tiktoken.load.read_file", lambda path: pytest.fail(f"would download {path}"))


@pytest.fixture
def vocabularies(monkeypatch):
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(VOCABULARIES))


def words(text):
    return text.split()


def test_without_a_vocabulary_a_count_is_an_estimate():
    assert count_text("Hello, world!", "gpt-4.1") == TokenCount(4, estimated=True)


def test_the_callers_tokenizer_counts_exactly():
    assert count_text("one two three", "local/demo", encode=words) == TokenCount(3, estimated=False)


@needs_vocabularies
@pytest.mark.parametrize(
    ("model", "encoding"),
    [
        ("gpt-4.1-nano", "o200k_base"),
        ("openai/gpt-4o", "o200k_base"),
        ("openrouter/openai/gpt-oss-120b", "o200k_harmony"),
        ("gpt-3.5-turbo", "cl100k_base"),
    ],
)
def test_the_models_own_vocabulary_counts_exactly(vocabularies, model, encoding):
    text = "Привет, мир! tiktoken"  # the vocabularies tokenize it differently
    tokens = len(tiktoken.get_encoding(encoding).encode_ordinary(text))
    assert count_text(text, model) == TokenCount(tokens, estimated=False)


@needs_vocabularies
@pytest.mark.parametrize("model", ["anthropic/claude-sonnet-4-0", "local/demo", "davinci", ""])
def test_other_models_are_estimated(vocabularies, model):
    assert count_text("some text", model).estimated


@needs_vocabularies
def test_control_token_names_are_counted_as_text(vocabularies):
    assert count_text("<|endoftext|>", "gpt-4.1") == TokenCount(7, estimated=False)


@needs_vocabularies
def test_chat_framing_tokens_are_counted_as_documented(vocabularies):
    messages = [
        {"role": "system", "content": "You are brief."},
        {"role": "user", "name": "ann", "content": "Hi"},
    ]
    words_in_them = sum(count_text(text, "gpt-4o").tokens for m in messages for text in m.values())
    # 3 per message, 1 per name, 3 for the reply (OpenAI cookbook).
    assert count_messages(messages, "gpt-4o") == TokenCount(words_in_them + 3 + 3 + 1 + 3, estimated=False)


def test_a_damaged_vocabulary_is_not_used(tmp_path):
    (tmp_path / O200K).write_bytes(b"aGVsbG8= 0\n")
    assert count_text("hello", "gpt-5-damaged").estimated
    assert (tmp_path / O200K).exists()  # tiktoken's own loader would remove the file and download it


@pytest.mark.parametrize("folder", ["", "/nowhere/at/all"])
def test_without_a_cache_folder_the_count_is_estimated(monkeypatch, folder):
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", folder)
    assert count_text("hello", "gpt-4.1").estimated


@needs_vocabularies
def test_the_older_variable_and_the_default_folder_are_searched(monkeypatch, tmp_path):
    shutil.copy(VOCABULARIES / O200K, tmp_path / O200K)
    monkeypatch.delenv("TIKTOKEN_CACHE_DIR")
    monkeypatch.setenv("DATA_GYM_CACHE_DIR", str(tmp_path))
    assert not count_text("hello", "gpt-4.1-older-variable").estimated
    monkeypatch.delenv("DATA_GYM_CACHE_DIR")
    default = tmp_path / "data-gym-cache"
    default.mkdir()
    (tmp_path / O200K).rename(default / O200K)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert not count_text("hello", "gpt-4.1-default-folder").estimated


def test_a_huge_text_is_estimated_even_with_a_tokenizer():
    assert count_text("word " * 300_000, "m", encode=words) == TokenCount(300_000, estimated=True)


@pytest.mark.parametrize(
    "message",
    [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "t1", "content": "42"},
        {
            "role": "user",
            "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}],
        },
        {"role": "user", "content": 5},
        "no message at all",
    ],
)
def test_content_other_than_text_makes_a_chat_count_an_estimate(message):
    plain = [{"role": "user", "content": "Hi"}]
    assert not count_messages(plain, "gpt-4o", encode=words).estimated
    assert count_messages([*plain, message], "gpt-4o", encode=words).estimated
    more = count_messages([*plain, message], "gpt-4o", encode=words).tokens
    assert more > count_messages(plain, "gpt-4o", encode=words).tokens


def test_a_response_message_counts_like_its_mapping():
    answered = ChatCompletionMessage(content="Hi")
    as_mapping = {"role": "assistant", "content": "Hi"}
    assert count_messages([answered], "gpt-4o") == count_messages([as_mapping], "gpt-4o")


def test_images_do_not_count_as_text():
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "iVBORw0KGgo" * 1000}}
    text = {"type": "text", "text": "what is this?"}
    alone = count_messages([{"role": "user", "content": [text]}], "gpt-4o").tokens
    both = count_messages([{"role": "user", "content": [text, image]}], "gpt-4o")
    assert both == TokenCount(
        alone + 765, estimated=True
    )  # without a readable size, 1024 x 1024 pixels are assumed


def test_text_parts_count_like_one_text():
    parts = [{"type": "text", "text": "one two"}, {"type": "text", "text": "three"}]
    assert count_messages([{"role": "user", "content": parts}], "gpt-4o", encode=words) == TokenCount(
        3 + 1 + 3 + 3, estimated=False
    )


@given(st.text(), st.text())
def test_more_text_is_never_estimated_to_be_fewer_tokens(left, right):
    both = estimate(f"{left}\n{right}")
    assert type(both) is int
    assert both >= max(estimate(left), estimate(right))


@given(st.text(st.characters(categories=["Cs", "L", "N", "Zs", "Cc"])))
def test_no_text_raises(text):
    assert count_text(text, "gpt-4.1").tokens >= 0


@needs_vocabularies
@needs_data
@pytest.mark.parametrize(
    ("corpus", "median_error", "sum_error"), [("code", 0.08, 0.08), ("prose", 0.06, 0.04)]
)
def test_the_estimates_error_is_within_the_documented_bounds(vocabularies, corpus, median_error, sum_error):
    if corpus == "code":
        with gzip.open(SHARED / "data" / "HumanEval.jsonl.gz", "rt") as lines:
            texts = [row["prompt"] + row["canonical_solution"] for row in map(json.loads, lines)]
    else:
        lines = (SHARED / "data" / "spec_bench_question.jsonl").read_text().splitlines()
        texts = [" ".join(json.loads(line)["turns"]) for line in lines]
    exact = [count_text(text, "gpt-4.1").tokens for text in texts]
    errors = sorted(abs(estimate(text) / tokens - 1) for text, tokens in zip(texts, exact, strict=True))
    assert statistics.median(errors) < median_error
    assert errors[int(len(errors) * 0.95)] < 0.185
    assert abs(sum(map(estimate, texts)) / sum(exact) - 1) < sum_error


_leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary()
_anything = st.recursive(
    _leaves,
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner) | st.tuples(inner),
    max_leaves=20,
)
_KNOWN = ["type", "text", "function", "name", "arguments", "image_url", "url", "detail", "source", "data"]
_KNOWN += ["content", "role", "tool_calls", "parameters", "properties", "enum", "description", "required"]
_WORDS = ["text", "image_url", "input_image", "image", "function", "low", "data:image/png;base64,iVBO"]
_shaped = st.recursive(
    _leaves | st.sampled_from(_WORDS),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(_KNOWN), inner),
    max_leaves=25,
)


@given(
    value=_anything | _shaped,
    other=_shaped,
    method=st.sampled_from([CHAT, COMPLETION, RESPONSE, EMBEDDING]),
    model=st.sampled_from(["gpt-4o", "claude-opus-4-8", "gemini-3-pro", "local/demo", ""]),
)
def test_no_request_raises(value, other, method, model):
    names = (
        "messages",
        "tools",
        "functions",
        "tool_choice",
        "input",
        "instructions",
        "prompt",
        "response_format",
    )
    for name in names:
        params = {**dict.fromkeys(names, other), name: value}
        assert count_prompt(Request(method, params=params), model).tokens >= 0


def test_deep_and_circular_values_do_not_raise():
    deep, circle = [], []
    for _ in range(100_000):
        deep = [deep]
    circle.append(circle)
    for value in (
        deep,
        circle,
        [deep],
        [circle],
        {"content": circle},
        [{"content": [circle, {"type": circle}]}],
    ):
        for name in ("messages", "prompt", "input", "tools"):
            for method in (CHAT, COMPLETION, RESPONSE, EMBEDDING):
                assert count_prompt(Request(method, params={name: value}), "gpt-4o").tokens >= 0


def test_a_failing_tokenizer_gives_an_estimate():
    def fails(_):
        raise RuntimeError("the tokenizer is broken")

    assert count_text("one two three", "m", encode=fails) == TokenCount(3, estimated=True)


@needs_vocabularies
def test_a_model_unknown_to_tiktoken_uses_the_latest_vocabulary(vocabularies):
    text = "Привет, мир! tiktoken"
    exact = count_text(text, "gpt-4.1")
    assert count_text(text, "gpt-9-large") == replace(exact, estimated=True)
    assert count_text(text, "my-model") == TokenCount(estimate(text), estimated=True)


def test_tiktoken_is_not_imported_before_it_is_needed(tmp_path):
    script = (
        "import sys; from specclient.tokens import count_text; count_text('x', 'local/demo');"
        "sys.exit('tiktoken' in sys.modules)"
    )
    environment = {**os.environ, "TIKTOKEN_CACHE_DIR": str(tmp_path / "none")}
    assert subprocess.run([sys.executable, "-c", script], check=False, env=environment).returncode == 0


def test_a_long_text_is_estimated_in_slices():
    """The regular expression holds the GIL for the length of a slice, and not for that of a text."""
    text = "def f(x):\n    return x + 1000\n" * 10_000
    assert estimate(text) == pytest.approx(10_000 * estimate("def f(x):\n    return x + 1000\n"), rel=0.01)
    assert estimate("a" * 1_000_000) == pytest.approx(1_000_000 / 4.5, rel=0.01)


def test_the_estimate_of_data_takes_linear_time():
    """Runs that are too short for base64 were searched anew from each of their characters."""
    value = {"data": ("A" * 255 + " ") * 20_000}
    assert count_messages([{"role": "user", "content": [value]}], "local/demo").tokens > 0


@needs_vocabularies
def test_a_text_on_which_tiktoken_panics_is_estimated(vocabularies):
    """Its regular expressions overflow their stack; the panic is no ``Exception``."""
    assert count_text(" " * 1_000_000, "gpt-4.1").estimated
