"""Tokenizer and chat templates."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Library

from specclient.errors import BadRequestError, CheckpointError, ContextOverflowError
from specclient.runtime.forks import import_lock
from specclient_local.model.chat_template import chat_renderer
from specclient_local.model.checkpoint_files import (
    MAX_JSON_BYTES,
    check_files,
    checkpoint_errors,
    is_gguf,
    one_line,
    read_json,
)
from specclient_local.model.gguf.vocabulary import GgufVocabulary, read_vocabulary

#: Files that transformers reads for a chat, in addition to ``tokenizer.json``.
_CHAT_FILES = ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "chat_template.json")

_RAW_BYTE = re.compile(r"<0x([0-9A-F]{2})>")

#: Maximum characters of a text that is encoded without releasing the GIL, which takes a few milliseconds. The
#: library releases the GIL for batches only; for these it starts threads, and prints a warning after a fork.
_BRIEF = 16_384

#: Number of words whose tokens the library caches. Its default of 10,000 encodes source code a tenth faster,
#: but takes up to 70 MB if a client sends random words of the maximum cached length (256 bytes).
_REMEMBERED_WORDS = 2000

#: Types of tokenizer parts that drop no character of a text. Others may, for example all but one of many
#: spaces.
_LOSSLESS = frozenset({"ByteLevel", "Digits", "Metaspace", "NFC", "Prepend", "Punctuation", "Replace",
                       "Sequence", "Split"})  # fmt: skip
#: Maximum factor by which Unicode's NFC shortens a text in UTF-8 (UAX 15, "Stability and Growth").
_COMPOSED = 3
#: Assumed maximum factor by which a tokenizer shortens a text if it may drop characters.
_DROPPED = 64

#: Special tokens that are kept in decoded text, because tool-call parsers need them.
_SHOWN = ("<tool_call>", "</tool_call>", "[TOOL_CALLS]", "[ARGS]", "<|python_tag|>")


def _byte_alphabet() -> dict[str, int]:
    """Return the byte of each character in byte-level vocabularies (GPT-2's table)."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in shown]
    return {chr(b): b for b in shown} | {chr(256 + i): b for i, b in enumerate(hidden)}


_BYTES = _byte_alphabet()


def _load_library(path: Path) -> Library:
    """Read a ``tokenizer.json`` with the library.

    Raises:
        CheckpointError: the file is too large or invalid.
    """
    size = path.stat().st_size
    if size > MAX_JSON_BYTES:
        raise CheckpointError(f"{path} has {size} bytes; at most {MAX_JSON_BYTES} are read.")
    try:
        library = Library.from_file(str(path))
    except BaseException as error:  # the library raises bare Exception; a panic of Rust is a BaseException
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise CheckpointError(
            f"{path} is not a valid tokenizer.json ({one_line(error)}); download it again."
        ) from error
    return library


class Tokenizer:
    """A checkpoint's tokenizer, loaded from ``tokenizer.json`` or from a GGUF file.

    Args:
        folder: the checkpoint's folder, or a GGUF file.

    Raises:
        CheckpointError: the file is missing or cannot be read.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._gguf: GgufVocabulary | None = None
        path = folder
        if is_gguf(folder):
            self._gguf = read_vocabulary(folder)
            self._library = self._gguf.library
        else:
            path = folder / "tokenizer.json"
            check_files(folder)  # transformers reads more files than this one for chats
            if not path.is_file():
                raise CheckpointError(
                    f"{path} is missing; save the tokenizer next to the weights "
                    "(AutoTokenizer.from_pretrained(...).save_pretrained(folder))."
                )
            self._library = _load_library(path)
        if hasattr(self._library.model, "_resize_cache"):  # not all kinds of models have one
            self._library.model._resize_cache(_REMEMBERED_WORDS)
        # Files saved by a training run may enable truncation and padding; a prompt must not be changed.
        self._library.no_truncation()
        self._library.no_padding()
        added = self._library.get_added_tokens_decoder()
        self._special = {token.content: number for number, token in added.items() if token.special}
        self._added = {number: token.content for number, token in added.items()}
        self._shown = {number for name in _SHOWN if (number := self._special.get(name)) is not None}
        with checkpoint_errors(path):
            decoder = self._library.decoder
            state = b"null" if decoder is None else decoder.__getstate__()
            kind = (json.loads(state) or {}).get("type")
        self._byte_level = b'"ByteLevel"' in state
        self._said: dict[int, bytes] = {}
        #: Whether the bytes of a text are the concatenated bytes of its tokens.
        self.bytewise = kind == "ByteLevel"
        self._chat: Any = None

    @cached_property
    def token_bytes(self) -> int:
        """Maximum bytes of text per token: a text of ``n`` bytes has at least ``n / token_bytes`` tokens.

        It is the length of the longest token. Normalizers that compose characters, and tokenizers that may
        drop characters, raise it.
        """
        vocabulary = self._library.get_vocab()
        if self._byte_level:
            longest = max(map(len, vocabulary), default=1)
        else:
            longest = max((len(token.replace("\u2581", " ").encode()) for token in vocabulary), default=1)
        longest = max(longest, *(len(token.encode()) for token in self._added.values()), 1)
        parts = [*_part_kinds(self._library.normalizer), *_part_kinds(self._library.pre_tokenizer)]
        if not (self._keeps_text(vocabulary) and _LOSSLESS.issuperset(parts)):
            return longest * _DROPPED
        return longest * (_COMPOSED if "NFC" in parts else 1)

    def _keeps_text(self, vocabulary: Mapping[str, int]) -> bool:
        """Return whether every character of a pre-tokenized text is part of a token."""
        if any(token.lstrip or token.rstrip for token in self._library.get_added_tokens_decoder().values()):
            return False  # such a token takes all spaces beside it
        model: Any = self._library.model
        if type(model).__name__ != "BPE":
            return False  # unknown words become one token, whatever their length
        if model.byte_fallback:
            return all(f"<0x{byte:02X}>" in vocabulary for byte in range(256))
        return self._byte_level and _BYTES.keys() <= vocabulary.keys()

    def check_length(self, name: str, text: str, most: int) -> None:
        """Refuse a text that certainly has more tokens than allowed, without encoding it.

        Args:
            name: the request's parameter, for the message.
            text: the text.
            most: the allowed number of tokens.

        Raises:
            ContextOverflowError: the text is too long.
        """
        if len(text) <= most:
            return
        size = len(text) if text.isascii() else len(text.encode(errors="surrogatepass"))
        least = -(-size // self.token_bytes)
        if least > most:
            raise ContextOverflowError(
                f"{name} has {size} bytes and so at least {least} tokens; allowed are {most}: shorten it, or "
                "load the engine with a larger context."
            )

    @property
    def learned(self) -> int:
        """Size of the vocabulary without tokens added later."""
        return self._library.get_vocab_size(with_added_tokens=False)

    def encode(self, text: str, *, begins: bool = True) -> list[int]:
        """Encode text. If ``begins``, add the tokenizer's special tokens (often a start token)."""
        if len(text) <= _BRIEF:
            return list(self._library.encode(text, add_special_tokens=begins).ids)
        [encoding] = self._library.encode_batch_fast([text], add_special_tokens=begins)
        return list(encoding.ids)

    def decode(self, ids: Sequence[int]) -> str:
        """Decode ids. Special tokens are omitted, except the ones that mark tool calls."""
        if self._shown.isdisjoint(ids):
            return self._library.decode(list(ids), skip_special_tokens=True)
        text, run = "", list[int]()
        for token in ids:
            if token in self._shown:
                text += self._library.decode(run, skip_special_tokens=True) + self._added[token]
                run = []
            else:
                run.append(token)
        return text + self._library.decode(run, skip_special_tokens=True)

    def piece(self, token: int) -> bytes:
        """Return the bytes of a single token: often part of a word, sometimes part of a character.

        A special token returns its name; an id that only pads the vocabulary returns nothing.
        """
        written = self._library.id_to_token(token)
        if written is None or token in self._added:
            return self._added.get(token, "").encode()
        if self._byte_level and all(character in _BYTES for character in written):
            return bytes(_BYTES[character] for character in written)
        raw = _RAW_BYTE.fullmatch(written)
        return bytes([int(raw[1], 16)]) if raw else written.replace("\u2581", " ").encode()

    def said(self, token: int) -> bytes:
        """Return the bytes that a token adds to decoded text; requires a ``bytewise`` tokenizer."""
        found = self._said.get(token)
        if found is None:
            written = self._library.id_to_token(token) or ""
            if token in self._special.values() and token not in self._shown:
                written = ""
            if all(character in _BYTES for character in written) and token not in self._shown:
                found = bytes(_BYTES[character] for character in written)
            else:  # an added token that is not in GPT-2's byte alphabet; the library decodes it as text
                found = written.encode()
            self._said[token] = found
        return found

    def special(self, text: str) -> int | None:
        """Return the id of the special token with this text, or None."""
        return self._special.get(text)

    def added(self, text: str) -> int | None:
        """Return the id of the added token with this text, or None."""
        return next((number for number, name in self._added.items() if name == text), None)

    def template(self, tools: Sequence[Mapping[str, Any]] = ()) -> str:
        """Return the checkpoint's chat template; its tool template if it has one and tools are given.

        Raises:
            BadRequestError: the checkpoint has no chat template.
        """
        with import_lock:  # transformers creates its names lazily; concurrent imports can fail
            from transformers import PreTrainedTokenizerFast  # noqa: PLC0415 - slow, only chats need it

            if self._chat is None:
                self._chat = self._load_chat(PreTrainedTokenizerFast)
        if not self._chat.chat_template:
            raise BadRequestError(
                f"{self.folder} has no chat template, so it cannot chat; use the completions endpoint."
            )
        return str(self._chat.get_chat_template(tools=list(tools) or None))

    def _load_chat(self, library: Any) -> Any:
        """Load the tokenizer with its chat template by transformers.

        Raises:
            CheckpointError: a file of the tokenizer is invalid.
        """
        if self._gguf is not None:
            templates = dict(self._gguf.templates) or None
            return library(tokenizer_object=self._library, chat_template=templates, **self._gguf.special)
        check_files(self.folder)
        for name in _CHAT_FILES:
            if (self.folder / name).is_file():
                read_json(self.folder / name)
        try:
            return library.from_pretrained(self.folder)
        except Exception as error:  # the library raises many types of exceptions for broken files
            raise CheckpointError(
                f"{self.folder}: the chat tokenizer cannot be loaded ({type(error).__name__}: "
                f"{one_line(error)}); download it again."
            ) from error

    def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] = (),
        most: int | None = None,
    ) -> list[int]:
        """Render a chat with the checkpoint's template, ending with the generation prompt, and encode it.

        Args:
            messages: OpenAI messages with text content and tool-call arguments as objects.
            tools: available tools, in OpenAI's format.
            most: the allowed number of tokens; None for any. A chat that certainly has more is not encoded.

        Raises:
            BadRequestError: the checkpoint has no template, or the template rejects the messages, fails, or
                takes too much time or memory.
            ContextOverflowError: the chat is too long.
        """
        template = self.template(tools)
        text = chat_renderer().render(template, messages, tools, self._chat.special_tokens_map)
        if most is not None:
            self.check_length("messages", text, most)
        return self.encode(text, begins=False)  # the template writes the special tokens itself

    def difference(self, other: Tokenizer) -> str | None:
        """Describe how another tokenizer's vocabulary differs, or return None if it does not.

        Draft and target must assign the same token to every id; only the target splits text into tokens.
        """
        mine, theirs = self._library.get_vocab(), other._library.get_vocab()
        if mine == theirs:
            return None
        if len(mine) != len(theirs):
            return f"{len(mine)} tokens against {len(theirs)}"
        token = min(set(mine.items()) ^ set(theirs.items()), key=lambda item: (item[1], item[0]))[0]
        return f"token {token!r} has id {mine.get(token)} against {theirs.get(token)}"


def _part_kinds(part: Any) -> Iterator[str]:
    """Yield the types of a normalizer or pre-tokenizer and its parts. One that drops text is "Removed"."""
    waiting = [None if part is None else json.loads(part.__getstate__())]
    while waiting:
        state = waiting.pop()
        if state is None:
            continue
        waiting += [*state.get("normalizers", ()), *state.get("pretokenizers", ())]
        kept = state.get("behavior") != "Removed" and (state["type"] != "Replace" or _only_grows(state))
        yield state["type"] if kept else "Removed"


def _only_grows(state: Mapping[str, Any]) -> bool:
    """Return whether a replacement never shortens a text."""
    old = state["pattern"].get("String")
    return old is not None and len(state["content"].encode()) >= len(old.encode())
