"""Drafts by a small model with another tokenizer: its text is encoded again by the target's tokenizer.

The small model continues the text so far greedily. The target's tokenizer encodes this continuation after the
existing tokens, and the tokens that decode to exactly that text are proposed (string-level exact match: Timor
et al., arXiv 2502.05202, algorithm 2). They are picked, not drawn, so q is one-hot and verification is exact
at any temperature.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass, field, replace
from math import ceil

from specclient_local.drafting.draft_model import DraftModel
from specclient_local.drafting.drafter import Drafter, DraftShape, chain
from specclient_local.drafting.vocabulary_match import ForeignDraft
from specclient_local.model.detokenizer import IncrementalDetokenizer
from specclient_local.model.tokenizer import Tokenizer
from specclient_local.request.params import SamplingParams
from specclient_local.request.sequence import Sequence
from specclient_local.request.token_tree import TokenTree

_GREEDY = SamplingParams(temperature=0.0)
_TAIL = 8
"""Number of tokens before the draft that are encoded again with it; a token must end where they end."""

_WINDOW = 512
"""Number of characters that are encoded again for the draft when the text has grown."""

_UNFINISHED = "\ufffd"
_MAX_DRAFT_TOKENS = 48
"""Maximum number of the draft's tokens per proposal."""


@dataclass(slots=True)
class RetokenisedSequence:
    """A sequence as text and in the draft's tokens.

    Attributes:
        source: the request's own list of tokens; another list means another request.
        shadow: a sequence of the draft's tokens, in the same slot.
        stream: decodes the target's tokens, whole characters at a time.
        read: number of tokens of ``source`` that ``stream`` has read.
        text: end of the text, which is encoded again.
        fixed: number of the shadow's tokens before ``text``.
        tree: the last proposal in the draft's tokens.
    """

    source: list[int]
    shadow: Sequence
    stream: IncrementalDetokenizer
    read: int = 0
    text: str = ""
    fixed: int = 0
    tree: TokenTree = field(default_factory=TokenTree)


class RetokenisedDrafter(Drafter):
    """Drafts chains by a small model with another tokenizer.

    Args:
        model: the small model's drafter, over its own vocabulary.
        foreign: the tokenizers.
        vocab: number of columns of the target's logits.
    """

    def __init__(self, model: DraftModel, foreign: ForeignDraft, vocab: int) -> None:
        self.model = model
        self._target, self._draft = foreign.target, foreign.draft
        self._ratio = foreign.ratio
        self._vocab = vocab
        self._states: dict[int, RetokenisedSequence] = {}

    def begin(self, sequence: Sequence) -> bool:
        """Prefill a chunk of the prompt as the draft's tokenizer encodes it."""
        return self.model.begin(self._read(sequence).shadow)

    def propose(self, sequences: Seq[Sequence], shapes: Seq[DraftShape]) -> list[TokenTree]:
        """Propose as many of the target's tokens as the shape has, or as the draft's text encodes to."""
        state = [self._read(sequence) for sequence in sequences]
        steps = [
            0 if each.stream.flush() else min(_MAX_DRAFT_TOKENS, ceil(len(shape) * self._ratio) + 1)
            for each, shape in zip(state, shapes, strict=True)
        ]
        # A draft begins with a token that is not in the cache. If the target's new tokens have no text, or
        # only part of a character, they bring none, so the last token is read again.
        for each in state:
            self._forget(each.shadow, len(each.shadow.tokens) - 1)
        trees = self.model.propose([each.shadow for each in state], [chain(count) for count in steps])
        proposed: list[TokenTree] = []
        for sequence, each, shape, tree in zip(sequences, state, shapes, trees, strict=True):
            each.tree = tree
            drafted_text = continuation(self._draft, each.shadow.tokens, tree.tokens)
            tokens = retokenised_prefix(self._target, sequence.tokens, drafted_text)
            known = next((i for i, token in enumerate(tokens) if token >= self._vocab), len(tokens))
            proposed.append(TokenTree.chain(tokens[: min(known, len(shape))]))
        return proposed

    def commit(self, sequence: Sequence, tree: TokenTree, path: list[int]) -> None:
        """Keep the draft's tokens whose text lies within the accepted text."""
        state = self._states.get(sequence.cache_slot)
        if state is None:
            return
        accepted = continuation(self._target, sequence.tokens, [tree.tokens[node] for node in path])
        drafted, kept = state.tree.tokens, 0
        while kept < len(drafted):
            drafted_text = continuation(self._draft, state.shadow.tokens, drafted[: kept + 1])
            if not drafted_text or not accepted.startswith(drafted_text):
                break
            kept += 1
        self.model.commit(state.shadow, state.tree, list(range(kept)))
        state.shadow.tokens += drafted[:kept]
        state.tree = TokenTree()

    def end(self, sequence: Sequence) -> None:
        """Forget a sequence; its slot may then be assigned to another sequence."""
        self._states.pop(sequence.cache_slot, None)
        self.model.end(sequence)

    def _read(self, sequence: Sequence) -> RetokenisedSequence:
        """Return the sequence in the draft's tokens, up to its last whole character."""
        state = self._states.get(sequence.cache_slot)
        if state is None or state.source is not sequence.tokens:
            shadow = replace(sequence, tokens=[], logits_processor=None, params=_GREEDY)
            state = RetokenisedSequence(sequence.tokens, shadow, IncrementalDetokenizer(self._target))
            self._states[sequence.cache_slot] = state
        new = "".join(map(state.stream.push, sequence.tokens[state.read :]))
        first, state.read = not state.read, len(sequence.tokens)
        if new or first:
            state.text += new
            self._encode(state)
        return state

    def _encode(self, state: RetokenisedSequence) -> None:
        """Encode the end of the text again, and drop cached tokens that are now encoded differently."""
        shadow = state.shadow
        ids = self._draft.encode(state.text, begins=state.fixed == 0)
        old = shadow.tokens[state.fixed :]
        same = next(
            (i for i, (a, b) in enumerate(zip(old, ids, strict=False)) if a != b), min(len(old), len(ids))
        )
        shadow.tokens[state.fixed + same :] = ids[same:]
        if not shadow.tokens:
            shadow.tokens.append(0)  # any context gives a valid draft
        if old:  # otherwise the cache is still empty
            self._forget(shadow, state.fixed + same)
        if len(state.text) > _WINDOW:
            self._fix(state)

    def _forget(self, shadow: Sequence, end: int) -> None:
        """Truncate the draft's cache to at most ``end`` tokens."""
        runner = self.model.runner
        if runner.length(shadow.cache_slot) > end:
            runner.truncate(shadow.cache_slot, end)

    def _fix(self, state: RetokenisedSequence) -> None:
        """Shorten the text that is encoded again: cut it at a line or word about halfway."""
        half = len(state.text) - _WINDOW // 2
        cut = max(state.text.rfind("\n", 0, half) + 1, state.text.rfind(" ", 0, half))
        if cut <= 0:
            return
        before = self._draft.encode(state.text[:cut], begins=state.fixed == 0)
        own = state.shadow.tokens[state.fixed :]
        if own[: len(before)] == before:  # both encodings agree at the cut
            state.text, state.fixed = state.text[cut:], state.fixed + len(before)


def continuation(tokenizer: Tokenizer, before: Seq[int], tokens: Seq[int]) -> str:
    """Return the text that ``tokens`` add after ``before``, without an incomplete last character."""
    if not tokens:
        return ""
    tail = list(before[-_TAIL:])
    base, extended = tokenizer.decode(tail), tokenizer.decode([*tail, *tokens])
    return extended[len(base) :].rstrip(_UNFINISHED) if extended.startswith(base) else ""


def retokenised_prefix(tokenizer: Tokenizer, before: Seq[int], text: str) -> list[int]:
    """Return tokens for a text that follows other tokens: as many as decode to exactly that text there.

    The text is encoded together with the last tokens before it, as the tokenizer would encode it in that
    position. If it would merge across the boundary, the text is encoded alone.

    Args:
        tokenizer: the target's.
        before: the existing tokens; not changed.
        text: the text to encode.
    """
    if not text:
        return []
    tail = list(before[-_TAIL:])
    base = tokenizer.decode(tail)
    together = tokenizer.encode(base + text, begins=False)
    end = next((i for i in range(len(together) + 1) if tokenizer.decode(together[:i]) == base), None)
    tokens = tokenizer.encode(text, begins=False) if end is None else together[end:]
    while tokens:
        read = tokenizer.decode([*tail, *tokens]).rstrip(_UNFINISHED)
        if (base + text).startswith(read) and len(read) > len(base):
            break
        tokens.pop()
    return tokens
