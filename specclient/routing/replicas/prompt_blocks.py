"""Hashes of a prompt's blocks, each of which depends on all blocks before it.

Servers keep the keys and values of a prompt by blocks, and reuse those of a prompt that begins alike (vLLM's
automatic prefix caching; Mooncake, Qin et al., 2407.00079, routes by such hashes). Gateways have no tokenizer
of a fleet's model, so blocks are of bytes. The key of the hash is drawn for each process, so that no client
can write prompts whose hashes collide with those of others.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from pydantic_core import to_json

from specclient.types.request import Request

__all__ = ["BLOCK_BYTES", "PromptBlocks", "block_bytes", "prompt_blocks"]

#: Bytes of a block, about 256 tokens of English, and the fewest where contexts are short.
BLOCK_BYTES, _FEWEST_BYTES = 1024, 64
#: Bytes of a block for each token of a short context: a prompt of full length then has about 64 blocks.
_CONTEXT_BYTES = 1 / 16
#: The most blocks of a prompt that are hashed; further ones are taken to be in no cache.
_MOST_BLOCKS = 1024
_DIGEST = 8
#: What templates write before the messages, and the prompts of the APIs. ``cache_salt`` is vLLM's: prompts
#: with different ones share no cache.
_BEFORE = ("cache_salt", "tools", "functions", "instructions")
_PROMPTS = ("messages", "input", "prompt")


class PromptBlocks(NamedTuple):
    """The blocks of one prompt.

    Attributes:
        hashes: of the whole blocks, in order.
        size: bytes of the prompt.
    """

    hashes: Sequence[int]
    size: int


def block_bytes(context: int | None) -> int:
    """Return the bytes of a block for a model of so many tokens of context; None for an unknown number."""
    if context is None:
        return BLOCK_BYTES
    return min(max(int(context * _CONTEXT_BYTES), _FEWEST_BYTES), BLOCK_BYTES)


def prompt_blocks(request: Request, key: bytes, block: int = BLOCK_BYTES) -> PromptBlocks:
    """Return the blocks of a request's prompt; a body that is sent unchanged is a prompt itself.

    Args:
        request: the call.
        key: of the hash, 16 to 64 random bytes.
        block: bytes of a block.
    """
    hashes: list[int] = []
    size = filled = 0
    state = hashlib.blake2b(digest_size=_DIGEST, key=key)
    for piece in _pieces(request):
        size += len(piece)
        at = 0
        while len(hashes) < _MOST_BLOCKS and at < len(piece):
            end = at + block - filled
            state.update(piece[at:end])
            if end > len(piece):
                filled += len(piece) - at
                break
            hashes.append(int.from_bytes(state.digest(), "little"))
            at, filled = end, 0
    return PromptBlocks(hashes, size)


def _pieces(request: Request) -> Iterator[bytes]:
    """Yield the prompt in the order in which servers' templates write it."""
    content = request.content
    if content is not None:
        yield content if isinstance(content, bytes) else b""
        return
    given: dict[str, Any] = {**request.params, **request.options.body}
    for name in (*_BEFORE, *_PROMPTS):
        value = given.get(name)
        if not value:
            continue
        if isinstance(value, str):
            yield value.encode("utf-8", "surrogatepass")
        elif isinstance(value, (list, tuple)):
            for each in value:  # so that the end of a list is not hashed before what a next turn appends
                yield _encoded(each)
        else:
            yield _encoded(value)


def _encoded(value: Any) -> bytes:
    """Return the bytes of a value; one without a JSON form is refused when the call is encoded, not here."""
    try:
        return to_json(value, fallback=str)
    except ValueError:
        return repr(value).encode("utf-8", "surrogatepass")
