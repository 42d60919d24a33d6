"""Incremental detokenization, and stop strings in its text."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Sequence

from specclient.chat_format.text_overlap import partial_match_length
from specclient_local.model.tokenizer import Tokenizer

_UNFINISHED = "\ufffd"
_CONTEXT, _LONGEST = 6, 12
"""Minimum and maximum number of previous ids that are decoded again to find the text of the next id."""


class IncrementalDetokenizer:
    """Decodes ids one by one into text increments; joined, they equal the text decoded at once.

    Text is held back while its last character is incomplete. The last tokens of the prompt are the context:
    a leading space that a tokenizer drops at the start of a text is kept after other text.

    Args:
        tokenizer: the tokenizer of the ids.
        prompt: ids before the first pushed one.
    """

    def __init__(self, tokenizer: Tokenizer, prompt: Sequence[int] = ()) -> None:
        self._tokenizer = tokenizer
        self._bytes = codecs.getincrementaldecoder("utf-8")("replace") if tokenizer.bytewise else None
        self._begun = False  # whether the prompt ended inside a character that is still incomplete
        if self._bytes is not None:
            self._bytes.decode(b"".join(map(tokenizer.said, prompt[-_CONTEXT:])))
            self._begun = bool(self._bytes.getstate()[0])
        else:
            self._ids, self._before = self._tail(prompt)

    def push(self, token: int) -> str:
        """Append a token and return the text that it completes; often empty."""
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
        """Return the text held back, with U+FFFD for incomplete characters; the state is unchanged."""
        if self._bytes is not None:
            text = self._bytes.getstate()[0].decode("utf-8", "replace")
            return text[1:] if self._begun else text
        return self._tokenizer.decode(self._ids)[len(self._before) :]

    def _own(self, text: str) -> str:
        """Return the first text without the U+FFFD of the prompt's last character, if that was invalid."""
        self._begun = False
        return text.removeprefix(_UNFINISHED)

    def _tail(self, ids: Sequence[int]) -> tuple[list[int], str]:
        """Return the last few ids, from the start of a character, and their text.

        If it started inside a character, a run of byte tokens would be decoded to U+FFFD as a whole.
        """
        begin = max(0, len(ids) - _CONTEXT)
        text = self._tokenizer.decode(ids[begin:])
        while begin > 0 and text.startswith(_UNFINISHED):
            begin -= 1
            text = self._tokenizer.decode(ids[begin:])
        return list(ids[begin:]), text


class StopStringFilter:
    """Ends text increments at the first stop string; holds text back while it may start a stop string.

    Args:
        stops: non-empty strings. The one completed first ends the text; of several completed at the same
            position, the longest, so the result does not depend on how the text was split.

    Attributes:
        stopped_by: the last stop string that ended an increment; None before any did.
    """

    def __init__(self, stops: Iterable[str]) -> None:
        self._stops = tuple(stops)
        self._held = ""
        self.stopped_by: str | None = None

    def push(self, text: str) -> tuple[str, bool]:
        """Return the text that can be emitted, and whether a stop string ended it."""
        if not self._stops:
            return text, False
        self._held += text
        found = [(at + len(stop), at) for stop in self._stops if (at := self._held.find(stop)) >= 0]
        if found:
            end, begin = min(found)
            out, self.stopped_by, self._held = self._held[:begin], self._held[begin:end], ""
            return out, True
        keep = max(partial_match_length(self._held, stop) for stop in self._stops)
        cut = len(self._held) - keep
        out, self._held = self._held[:cut], self._held[cut:]
        return out, False

    def flush(self) -> str:
        """Return the text held back."""
        out, self._held = self._held, ""
        return out
