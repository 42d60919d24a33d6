"""Turn token ids, as they are won, into the text that the target would have shown for them."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence

from specclient.call.strategies.remote.scoring import ScoringToken

#: What stands for a part of a character.
REPLACEMENT_CHARACTER = "\N{REPLACEMENT CHARACTER}"

DecodeTokens = Callable[[Sequence[int]], Awaitable[str]]


class RemoteDetokenizer:
    """Spells tokens. Whoever spells also sees what is no text: the token that ends an answer.

    A token's text by itself is not always what it adds to a text: blanks are dropped at the beginning of one,
    characters are split over tokens, and special tokens, such as the one at the end of an answer, show as
    nothing at all. Tokens seen to add just their own text are spelled by it; for others the draft's server
    decodes the whole, and what cannot be spelled for certain is not taken.

    Args:
        decode: returns the text of ids, without special tokens.
        prompt: the ids before the first token.
    """

    def __init__(self, decode: DecodeTokens, prompt: Sequence[int]) -> None:
        self._decode = decode
        self._prompt = list(prompt)
        self._plain: dict[int, str] = {}
        self._before: str | None = None  # the prompt's text
        self._settled = ""  # text up to the last whole character
        self._ids: list[int] = []
        self._open: list[ScoringToken] = []  # tokens after it
        self._shown = 0  # characters shown of theirs
        self._rest = ""  # what is held back of theirs

    @property
    def ids(self) -> list[int]:
        """The tokens taken so far."""
        return self._ids

    @property
    def text(self) -> str:
        """The text of whole characters so far."""
        return self._settled

    @property
    def whole(self) -> bool:
        """Whether the last character is."""
        return not self._open

    def learn(self, tokens: Sequence[ScoringToken], text: str) -> None:
        """Note tokens that together show as the beginning of ``text``, each by its own."""
        joined = "".join(token.text or REPLACEMENT_CHARACTER for token in tokens)
        if (
            REPLACEMENT_CHARACTER in joined
            or not text.startswith(joined)
            or not all(token.text for token in tokens)
        ):
            return
        self._plain.update((token.id, token.text or "") for token in tokens)

    async def trusted(self, tokens: Sequence[ScoringToken], text: str) -> str:
        """Take tokens that the target has just generated as this text; return what they show."""
        if not self._open and REPLACEMENT_CHARACTER not in text:
            return self._settle([token.id for token in tokens], text)
        return await self.spelled(tokens)

    async def spelled(self, tokens: Sequence[ScoringToken]) -> str:
        """Take tokens that the target has just generated, with no text told; return what they show."""
        return self._take(tokens, await self._grown([token.id for token in tokens]))

    async def scored(self, tokens: Sequence[ScoringToken]) -> tuple[int, str]:
        """Take tokens known by scores alone; return how many could be, and what they show.

        Among them may be one that ends the answer: then those before it are taken at most.
        """
        if not self._open and all(self._is_plain(token) for token in tokens):
            return len(tokens), self._settle([t.id for t in tokens], "".join(t.text or "" for t in tokens))
        for part in (tokens, tokens[:-1]):
            if part:
                grown = await self._grown([token.id for token in part])
                if _shows([*self._open, *part], grown):
                    return len(part), self._take(part, grown)
        return 0, ""

    def flush(self) -> str:
        """Return what was held back of a character that was never finished."""
        rest, self._rest = self._rest, ""
        self._open = []
        return rest

    def _is_plain(self, token: ScoringToken) -> bool:
        return token.text is not None and self._plain.get(token.id) == token.text

    async def shorten(self, length: int) -> None:
        """Drop tokens from the end while the rest still spells so many characters; for text already shown."""
        before = len(await self._prompt_text())
        while self._ids:
            rest = await self._decode([*self._prompt, *self._ids[:-1]])
            if len(rest.rstrip(REPLACEMENT_CHARACTER)) - before < length:
                return
            self._ids.pop()

    async def _prompt_text(self) -> str:
        if self._before is None:
            self._before = await self._decode(self._prompt)
        return self._before

    async def _grown(self, ids: Sequence[int]) -> str:
        """Return the text after the last whole character, with these tokens behind."""
        before = len(await self._prompt_text())
        whole = await self._decode([*self._prompt, *self._ids, *ids])
        return whole[before + len(self._settled) :]

    def _settle(self, ids: Sequence[int], text: str) -> str:
        self._ids += ids
        self._settled += text
        return text

    def _take(self, tokens: Sequence[ScoringToken], grown: str) -> str:
        self._ids += [token.id for token in tokens]
        whole = grown.rstrip(REPLACEMENT_CHARACTER)
        new = whole[self._shown :]
        if whole == grown:
            self._settled, self._open, self._shown, self._rest = self._settled + grown, [], 0, ""
        else:
            self._open = [*self._open, *tokens]
            self._shown = max(self._shown, len(whole))
            self._rest = grown[self._shown :]
        return new


def _shows(tokens: Sequence[ScoringToken], text: str) -> bool:
    """Tell whether every token shows in a text: blanks do not count, parts of characters show as they may."""
    pattern = ""
    for token in tokens:
        if not token.text:
            return False
        parts = "".join(token.text.split()).split(REPLACEMENT_CHARACTER)
        pattern += r".{0,2}".join(map(re.escape, parts))
    return re.fullmatch(pattern, "".join(text.split()), re.DOTALL) is not None
