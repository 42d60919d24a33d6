"""Detokenization without the target's tokenizer: the text of tokens as the target would show it."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence

from specclient.call.strategies.remote.scoring import ScoringToken

#: Shown for a part of a character.
REPLACEMENT_CHARACTER = "\N{REPLACEMENT CHARACTER}"

DecodeTokens = Callable[[Sequence[int]], Awaitable[str]]


class RemoteDetokenizer:
    """Appends tokens to an answer and returns the text that each adds.

    A token does not always add its own text: spaces are dropped at the beginning, characters are split over
    several tokens, and special tokens, such as the end token, have no text. Tokens
    that are known to add exactly their own text are appended by it. For the others, the draft's server
    decodes the whole token sequence; tokens whose text is not certain are not appended.

    Args:
        decode: returns the text of token ids, without special tokens.
        prompt: the ids before the first token.

    Attributes:
        hides_parts: whether the target's text ends before a character that was never completed, as vLLM's
            does; other servers show a replacement character.
    """

    hides_parts = False

    def __init__(self, decode: DecodeTokens, prompt: Sequence[int]) -> None:
        self._decode = decode
        self._prompt = list(prompt)
        self._plain: dict[int, str] = {}  # tokens known to add exactly their own text
        self._prompt_text: str | None = None
        self._complete_text = ""  # up to the last complete character
        self._ids: list[int] = []
        self._pending: list[ScoringToken] = []  # tokens after the last complete character
        self._shown = 0  # characters of the pending tokens that were returned
        self._rest = ""  # text of the pending tokens that was not returned

    @property
    def ids(self) -> list[int]:
        """The appended tokens."""
        return self._ids

    @property
    def text(self) -> str:
        """The text of the complete characters."""
        return self._complete_text

    @property
    def is_character_complete(self) -> bool:
        """Whether the appended tokens end with a complete character."""
        return not self._pending

    def learn(self, tokens: Sequence[ScoringToken], text: str) -> None:
        """Learn that tokens add exactly their own text, if their texts joined are a beginning of ``text``."""
        joined = "".join(token.text or REPLACEMENT_CHARACTER for token in tokens)
        if (
            REPLACEMENT_CHARACTER in joined
            or not text.startswith(joined)
            or not all(token.text for token in tokens)
        ):
            return
        self._plain.update((token.id, token.text or "") for token in tokens)

    async def append_text(self, tokens: Sequence[ScoringToken], text: str) -> str:
        """Append tokens that the target has just generated as ``text``; return the text to show."""
        if not self._pending and REPLACEMENT_CHARACTER not in text:
            return self._append_complete([token.id for token in tokens], text)
        return await self.append(tokens)

    async def append(self, tokens: Sequence[ScoringToken]) -> str:
        """Append tokens that the target has generated without reporting their text; return the text."""
        return self._append_grown(tokens, await self._text_with([token.id for token in tokens]))

    async def append_scored(self, tokens: Sequence[ScoringToken]) -> tuple[int, str]:
        """Append tokens that are known only by their scores.

        They may end with the end token, which has no text: then at most the tokens before it are appended.

        Returns:
            The number of tokens appended, and the text to show.
        """
        if not self._pending and all(self._is_plain(token) for token in tokens):
            text = "".join(token.text or "" for token in tokens)
            return len(tokens), self._append_complete([token.id for token in tokens], text)
        for part in (tokens, tokens[:-1]):
            if part:
                grown = await self._text_with([token.id for token in part])
                if _all_shown([*self._pending, *part], grown):
                    return len(part), self._append_grown(part, grown)
        return 0, ""

    def flush(self) -> str:
        """Return the buffered part of a character that was never completed."""
        rest, self._rest = self._rest, ""
        self._pending = []
        return "" if self.hides_parts else rest

    async def truncate_to(self, length: int) -> None:
        """Drop the last tokens that are not needed for the first ``length`` characters of the answer."""
        prompt_length = len(await self._decoded_prompt())
        while self._ids:
            text = await self._decode([*self._prompt, *self._ids[:-1]])
            if len(text.rstrip(REPLACEMENT_CHARACTER)) - prompt_length < length:
                return
            self._ids.pop()

    def _is_plain(self, token: ScoringToken) -> bool:
        return token.text is not None and self._plain.get(token.id) == token.text

    async def _decoded_prompt(self) -> str:
        if self._prompt_text is None:
            self._prompt_text = await self._decode(self._prompt)
        return self._prompt_text

    async def _text_with(self, ids: Sequence[int]) -> str:
        """Return the text after the last complete character if these tokens were appended."""
        prompt_length = len(await self._decoded_prompt())
        text = await self._decode([*self._prompt, *self._ids, *ids])
        return text[prompt_length + len(self._complete_text) :]

    def _append_complete(self, ids: Sequence[int], text: str) -> str:
        self._ids += ids
        self._complete_text += text
        return text

    def _append_grown(self, tokens: Sequence[ScoringToken], grown: str) -> str:
        """Append tokens; ``grown`` is the text after the last complete character, theirs included."""
        self._ids += [token.id for token in tokens]
        complete = grown.rstrip(REPLACEMENT_CHARACTER)
        new = complete[self._shown :]
        if complete == grown:
            self._complete_text += grown
            self._pending, self._shown, self._rest = [], 0, ""
        else:
            self._pending = [*self._pending, *tokens]
            self._shown = max(self._shown, len(complete))
            self._rest = grown[self._shown :]
        return new


def _all_shown(tokens: Sequence[ScoringToken], text: str) -> bool:
    """Return whether a text shows every token: spaces are ignored, parts of characters match loosely."""
    pattern = ""
    for token in tokens:
        if not token.text:
            return False
        parts = "".join(token.text.split()).split(REPLACEMENT_CHARACTER)
        pattern += r".{0,2}".join(map(re.escape, parts))
    return re.fullmatch(pattern, "".join(text.split()), re.DOTALL) is not None
