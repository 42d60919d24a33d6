"""Turn text and chats into ids, and ids back into text, whole or token by token."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Library

from specclient.errors import BadRequestError, CheckpointError
from specclient.runtime.forks import import_lock
from specclient_local.model.text_overlap import partial_match_length

_UNFINISHED = "\ufffd"
_CONTEXT, _LONGEST = 6, 12
"""Ids that are decoded again to see what the next one adds: as few as are kept, as many as may gather."""

_RAW_BYTE = re.compile(r"<0x([0-9A-F]{2})>")

#: Special tokens that are text all the same: whoever reads tool calls out of an answer needs them.
_SHOWN = ("<tool_call>", "</tool_call>", "[TOOL_CALLS]", "[ARGS]", "<|python_tag|>")


def _byte_alphabet() -> dict[str, int]:
    """Return the characters in which byte-level vocabularies write bytes (GPT-2's table)."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in shown]
    return {chr(b): b for b in shown} | {chr(256 + i): b for i, b in enumerate(hidden)}


_BYTES = _byte_alphabet()


class Tokenizer:
    """A checkpoint's ``tokenizer.json``.

    Raises:
        CheckpointError: the file is missing or cannot be read.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        path = folder / "tokenizer.json"
        if not path.is_file():
            raise CheckpointError(
                f"{path} is missing; save the tokenizer beside the weights "
                "(AutoTokenizer.from_pretrained(...).save_pretrained(folder))."
            )
        try:
            self._library = Library.from_file(str(path))
        except Exception as error:  # the library raises bare Exception
            raise CheckpointError(f"{path} is no tokenizer.json ({error}); download it again.") from error
        # Files saved by a training run may carry its cutting and padding; a prompt must stay whole.
        self._library.no_truncation()
        self._library.no_padding()
        added = self._library.get_added_tokens_decoder()
        self._special = {token.content: number for number, token in added.items() if token.special}
        self._added = {number: token.content for number, token in added.items()}
        self._shown = {number for name in _SHOWN if (number := self._special.get(name)) is not None}
        decoder = self._library.decoder
        state = b"null" if decoder is None else decoder.__getstate__()
        self._byte_level = b'"ByteLevel"' in state
        self._said: dict[int, bytes] = {}
        #: Whether a text's bytes are those of its tokens, one after the other.
        self.bytewise = (json.loads(state) or {}).get("type") == "ByteLevel"
        self._chat: Any = None

    @property
    def learned(self) -> int:
        """How many tokens it was made with, those added later not counted."""
        return self._library.get_vocab_size(with_added_tokens=False)

    def encode(self, text: str, *, begins: bool = True) -> list[int]:
        """Encode text; one that begins gets the special tokens the tokenizer adds (often a start token)."""
        return list(self._library.encode(text, add_special_tokens=begins).ids)

    def decode(self, ids: Sequence[int]) -> str:
        """Decode ids; special tokens give no text, but for those by which tools are called."""
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
        """Return what one token alone stands for: often part of a word, sometimes of a character.

        A special token stands for its own name, an id that only pads the vocabulary for nothing.
        """
        written = self._library.id_to_token(token)
        if written is None or token in self._added:
            return self._added.get(token, "").encode()
        if self._byte_level:
            return bytes(_BYTES[character] for character in written)
        raw = _RAW_BYTE.fullmatch(written)
        return bytes([int(raw[1], 16)]) if raw else written.replace("\u2581", " ").encode()

    def said(self, token: int) -> bytes:
        """Return the bytes that a token adds to a decoded text; for a tokenizer that is ``bytewise``."""
        found = self._said.get(token)
        if found is None:
            written = self._library.id_to_token(token) or ""
            if token in self._special.values() and token not in self._shown:
                written = ""
            if all(character in _BYTES for character in written) and token not in self._shown:
                found = bytes(_BYTES[character] for character in written)
            else:  # as the library reads an added token that is not written in those characters
                found = written.encode()
            self._said[token] = found
        return found

    def special(self, text: str) -> int | None:
        """Return the id of the special token written like this, or None."""
        return self._special.get(text)

    def added(self, text: str) -> int | None:
        """Return the id of the token that was added to the vocabulary under this name, or None."""
        return next((number for number, name in self._added.items() if name == text), None)

    def template(self, tools: Sequence[Mapping[str, Any]] = ()) -> str:
        """Return the checkpoint's chat template, the one for tools where it has one and they are given.

        Raises:
            BadRequestError: the checkpoint has none.
        """
        with (
            import_lock
        ):  # the library makes its names when they are asked for; two threads at once may find none
            from transformers import PreTrainedTokenizerFast  # noqa: PLC0415 - for chats alone, and slow

            if self._chat is None:
                self._chat = PreTrainedTokenizerFast.from_pretrained(self.folder)
        if not self._chat.chat_template:
            raise BadRequestError(
                f"{self.folder} has no chat template, so it cannot chat; use the completions endpoint."
            )
        return str(self._chat.get_chat_template(tools=list(tools) or None))

    def chat(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] = ()
    ) -> list[int]:
        """Lay out a chat by the checkpoint's own template, up to where the assistant answers.

        Args:
            messages: OpenAI's, with text for content and objects for the arguments of tool calls.
            tools: what the assistant may call, in OpenAI's form.

        Raises:
            BadRequestError: the checkpoint has no template, or its template refuses the messages.
        """
        from jinja2 import TemplateError  # noqa: PLC0415 - as above

        template = self.template(tools)
        try:
            text = self._chat.apply_chat_template(
                list(messages),
                tools=list(tools) or None,
                chat_template=template,
                tokenize=False,
                add_generation_prompt=True,
            )
        except (TemplateError, TypeError) as error:
            raise BadRequestError(f"messages do not fit the model's chat template: {error}") from error
        # The template writes the special tokens itself.
        return list(self._library.encode(text, add_special_tokens=False).ids)

    def difference(self, other: Tokenizer) -> str | None:
        """Say in words how another tokenizer differs in what a draft must share, or None.

        Draft and target must mean the same by every id; how text is split concerns the target alone.
        """
        mine, theirs = self._library.get_vocab(), other._library.get_vocab()
        if mine == theirs:
            return None
        if len(mine) != len(theirs):
            return f"{len(mine)} tokens against {len(theirs)}"
        token = min(set(mine.items()) ^ set(theirs.items()), key=lambda item: (item[1], item[0]))[0]
        return f"token {token!r} has id {mine.get(token)} against {theirs.get(token)}"


class IncrementalDetokenizer:
    """Turns ids, one by one, into text increments that join to the decoded whole.

    Text is held back while its last character is unfinished. A few tokens of the prompt give context:
    a leading space that a tokenizer drops at the start of a text is kept where text came before.

    Args:
        tokenizer: whose ids.
        prompt: ids before the first one pushed.
    """

    def __init__(self, tokenizer: Tokenizer, prompt: Sequence[int] = ()) -> None:
        self._tokenizer = tokenizer
        self._bytes = codecs.getincrementaldecoder("utf-8")("replace") if tokenizer.bytewise else None
        self._begun = False  # whether the prompt ends amid a character that nothing has ended yet
        if self._bytes is not None:
            self._bytes.decode(b"".join(map(tokenizer.said, prompt[-_CONTEXT:])))
            self._begun = bool(self._bytes.getstate()[0])
        else:
            self._ids, self._before = self._tail(prompt)

    def push(self, token: int) -> str:
        """Return the text that a token completes, often empty."""
        if self._bytes is not None:
            text = self._bytes.decode(self._tokenizer.said(token))
            return self._own(text) if self._begun and text else text
        self._ids.append(token)
        text = self._tokenizer.decode(self._ids)
        if text.endswith(_UNFINISHED) or len(text) < len(self._before):
            return ""
        new, self._before = text[len(self._before) :], text
        if len(self._ids) > _LONGEST:
            self._ids, self._before = self._tail(self._ids)
        return new

    def flush(self) -> str:
        """Return what is held back, unfinished characters as U+FFFD; it stays held."""
        if self._bytes is not None:
            text = self._bytes.getstate()[0].decode("utf-8", "replace")
            return text[1:] if self._begun else text
        return self._tokenizer.decode(self._ids)[len(self._before) :]

    def _own(self, text: str) -> str:
        """Return the first text without what the prompt's last character was if it came to nothing."""
        self._begun = False
        return text.removeprefix(_UNFINISHED)

    def _tail(self, ids: Sequence[int]) -> tuple[list[int], str]:
        """Return the last few ids, from the beginning of a character on, and their text.

        Begun inside a character, a run of byte tokens would decode to U+FFFD as a whole.
        """
        begin = max(0, len(ids) - _CONTEXT)
        text = self._tokenizer.decode(ids[begin:])
        while begin > 0 and text.startswith(_UNFINISHED):
            begin -= 1
            text = self._tokenizer.decode(ids[begin:])
        return list(ids[begin:]), text


class StopStringFilter:
    """Turns text increments into ones free of stop strings, held back while one may be beginning.

    Args:
        stops: non-empty strings. The one that is complete first ends the text; of several complete at
            once, the longest, so the outcome does not depend on how the text was cut into pieces.
    """

    def __init__(self, stops: Iterable[str]) -> None:
        self._stops = tuple(stops)
        self._held = ""

    def push(self, text: str) -> tuple[str, bool]:
        """Return the text that may go out, and whether a stop string ended it."""
        if not self._stops:
            return text, False
        self._held += text
        found = [(at + len(stop), at) for stop in self._stops if (at := self._held.find(stop)) >= 0]
        if found:
            out, self._held = self._held[: min(found)[1]], ""
            return out, True
        keep = max(partial_match_length(self._held, stop) for stop in self._stops)
        cut = len(self._held) - keep
        out, self._held = self._held[:cut], self._held[cut:]
        return out, False

    def flush(self) -> str:
        """Return what was held back."""
        out, self._held = self._held, ""
        return out
