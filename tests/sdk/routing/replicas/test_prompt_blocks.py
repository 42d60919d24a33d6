"""Hashes of a prompt's blocks."""

from __future__ import annotations

from typing import Any

from specclient.routing.replicas.prompt_blocks import BLOCK_BYTES, PromptBlocks, block_bytes, prompt_blocks
from specclient.types import inference_methods
from specclient.types.request import PerCallOptions, Request

KEY = b"k" * 32
LONG = "word " * 1000


def blocks_of(params: dict[str, Any], key: bytes = KEY, **more: Any) -> PromptBlocks:
    return prompt_blocks(Request(inference_methods.CHAT, "big/auto", params, **more), key)


def chat(*texts: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text} for text in texts]}


def common(first: PromptBlocks, second: PromptBlocks) -> int:
    """Return the number of first blocks that are alike."""
    pairs = zip(first.hashes, second.hashes, strict=False)
    least = min(len(first.hashes), len(second.hashes))
    return next((at for at, (one, other) in enumerate(pairs) if one != other), least)


def test_a_next_turn_begins_like_the_one_before() -> None:
    first, second = blocks_of(chat(LONG, "a")), blocks_of(chat(LONG, "a", "b", LONG))
    assert len(first.hashes) == first.size // BLOCK_BYTES == 4
    assert common(first, second) == 4
    assert len(second.hashes) > 8
    assert len(set(second.hashes)) == len(second.hashes), "equal texts at other places are other blocks"


def test_a_block_depends_on_all_before_it() -> None:
    assert common(blocks_of(chat(LONG)), blocks_of(chat("x" + LONG))) == 0
    late = LONG[:-3000] + "x" + LONG[-2999:]
    assert common(blocks_of(chat(LONG)), blocks_of(chat(late))) == 1
    one, other = blocks_of({"prompt": LONG[:1500] + LONG}), blocks_of({"prompt": "y" * 1500 + LONG})
    assert not set(one.hashes) & set(other.hashes), "also where the later text is alike"


def test_what_templates_write_first_counts() -> None:
    tools = [{"type": "function", "function": {"name": "f", "description": LONG}}]
    assert common(blocks_of({**chat(LONG), "tools": tools}), blocks_of(chat(LONG))) == 0
    body = PerCallOptions(body={"cache_salt": "s" * 40})
    assert common(blocks_of(chat(LONG)), blocks_of(chat(LONG), options=body)) == 0


def test_keys_of_processes_give_other_hashes() -> None:
    assert not set(blocks_of(chat(LONG)).hashes) & set(blocks_of(chat(LONG), b"x" * 32).hashes)


def test_prompts_of_any_kind_have_blocks() -> None:
    assert len(blocks_of({"prompt": LONG}).hashes) == len(blocks_of({"prompt": [LONG]}).hashes) == 4
    assert len(blocks_of({"prompt": list(range(5000))}).hashes) > 4
    assert len(blocks_of({"input": [{"role": "user", "content": LONG}], "instructions": "x"}).hashes) >= 4
    assert blocks_of({}) == ([], 0)
    assert len(blocks_of({}, content=LONG.encode()).hashes) == 4
    assert blocks_of({"messages": [{"content": {1, 2}}, object()], "tools": 5, "prompt": "\ud800"}).size > 0


def test_long_prompts_are_bounded() -> None:
    blocks = blocks_of({"prompt": "x" * 3_000_000})
    assert (len(blocks.hashes), blocks.size) == (1024, 3_000_000)


def test_a_prompt_without_a_json_form_has_blocks_as_others_have() -> None:
    found = blocks_of(chat(LONG, "\ud800" + LONG))
    assert common(found, blocks_of(chat(LONG, "a"))) == 4
    assert len(found.hashes) > 8


def test_short_contexts_have_smaller_blocks() -> None:
    assert [block_bytes(context) for context in (None, 131072, 16384, 4096, 1024, 128)] == [
        1024, 1024, 1024, 256, 64, 64
    ]  # fmt: skip
    found = prompt_blocks(Request(inference_methods.COMPLETION, "big/auto", {"prompt": LONG}), KEY, 64)
    assert len(found.hashes) == found.size // 64 == 78
