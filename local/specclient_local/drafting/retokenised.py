"""Turn sequences into guesses by a small model of another tokenizer, by way of text.

The draft goes on greedily from the text so far; what it says is encoded by the target's tokenizer behind the
tokens that stand there, and as much of it as reads the same is proposed (string-level exact match: Timor et
al., arXiv 2502.05202, alg. 2). The guesses are picked, not drawn, so their q is one-hot, and the
verification is exact at any temperature.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass, field, replace
from math import ceil

from specclient_local.drafting.draft_model import DraftModel
from specclient_local.drafting.drafter import DraftShape, chain
from specclient_local.drafting.vocabulary_match import ForeignDraft
from specclient_local.model.tokenizer import IncrementalDetokenizer, Tokenizer
from specclient_local.request.params import SamplingParams
from specclient_local.request.sequence import Sequence
from specclient_local.request.token_tree import TokenTree

_GREEDY = SamplingParams(temperature=0.0)
_TAIL = 8
"""Tokens before the guesses that are encoded again with them: where they end, a token must end."""

_WINDOW = 512
"""Characters that are encoded again for the draft when the text has grown; what is before them stays."""

_UNFINISHED = "\ufffd"
_MOST = 48
"""Tokens of the draft for one proposal."""


@dataclass(slots=True)
class RetokenisedSequence:
    """A sequence as text, and as the draft reads it.

    Attributes:
        source: the request's own growing list; another list is another request.
        shadow: a sequence of the draft's tokens, in the same slot.
        stream: gives the text of the target's tokens, whole characters at a time.
        read: how many of the source's tokens it was given.
        text: what is encoded again, the end of the whole; ``fixed`` of the shadow's tokens stand before it.
        tree: the last proposal in the draft's tokens.
    """

    source: list[int]
    shadow: Sequence
    stream: IncrementalDetokenizer
    read: int = 0
    text: str = ""
    fixed: int = 0
    tree: TokenTree = field(default_factory=TokenTree)


class RetokenisedDrafter:
    """Drafts chains by a small model with another tokenizer.

    Args:
        model: the small model's own drafter, over its own vocabulary.
        foreign: the tokenizers.
        vocab: columns of the target's logits.
    """

    def __init__(self, model: DraftModel, foreign: ForeignDraft, vocab: int) -> None:
        self.model = model
        self._target, self._draft = foreign.target, foreign.draft
        self._ratio = foreign.ratio
        self._vocab = vocab
        self._telling: dict[int, RetokenisedSequence] = {}

    def begin(self, sequence: Sequence) -> bool:
        """Prefill a chunk of the prompt as the draft's tokenizer cuts it."""
        return self.model.begin(self._read(sequence).shadow)

    def propose(self, sequences: Seq[Sequence], shapes: Seq[DraftShape]) -> list[TokenTree]:
        """Offer as many of the target's tokens as asked for, or as the draft's text comes to."""
        telling = [self._read(sequence) for sequence in sequences]
        steps = [
            0 if each.stream.flush() else min(_MOST, ceil(len(shape) * self._ratio) + 1)
            for each, shape in zip(telling, shapes, strict=True)
        ]
        for each in telling:  # tokens without text, or not yet a character, leave nothing new to go on from
            self._forget(each.shadow, len(each.shadow.tokens) - 1)
        trees = self.model.propose([each.shadow for each in telling], [chain(count) for count in steps])
        proposed: list[TokenTree] = []
        for sequence, each, shape, tree in zip(sequences, telling, shapes, trees, strict=True):
            each.tree = tree
            said = continuation(self._draft, each.shadow.tokens, tree.tokens)
            tokens = retokenised_prefix(self._target, sequence.tokens, said)
            known = next((i for i, token in enumerate(tokens) if token >= self._vocab), len(tokens))
            proposed.append(TokenTree.chain(tokens[: min(known, len(shape))]))
        return proposed

    def commit(self, sequence: Sequence, tree: TokenTree, path: list[int]) -> None:
        """Keep of the draft's cache the tokens that lie within the text of those accepted."""
        telling = self._telling.get(sequence.cache_slot)
        if telling is None:
            return
        accepted = continuation(self._target, sequence.tokens, [tree.tokens[node] for node in path])
        drafted, kept = telling.tree.tokens, 0
        while kept < len(drafted):
            said = continuation(self._draft, telling.shadow.tokens, drafted[: kept + 1])
            if not said or not accepted.startswith(said):
                break
            kept += 1
        self.model.commit(telling.shadow, telling.tree, list(range(kept)))
        telling.shadow.tokens += drafted[:kept]
        telling.tree = TokenTree()

    def end(self, sequence: Sequence) -> None:
        """Forget a sequence; its slot may then be assigned to another sequence."""
        self._telling.pop(sequence.cache_slot, None)
        self.model.end(sequence)

    def _read(self, sequence: Sequence) -> RetokenisedSequence:
        """Return a sequence as the draft reads it, up to its last whole character."""
        telling = self._telling.get(sequence.cache_slot)
        if telling is None or telling.source is not sequence.tokens:
            shadow = replace(sequence, tokens=[], rules=None, params=_GREEDY)
            telling = RetokenisedSequence(sequence.tokens, shadow, IncrementalDetokenizer(self._target))
            self._telling[sequence.cache_slot] = telling
        new = "".join(map(telling.stream.push, sequence.tokens[telling.read :]))
        first, telling.read = not telling.read, len(sequence.tokens)
        if new or first:
            telling.text += new
            self._encode(telling)
        return telling

    def _encode(self, telling: RetokenisedSequence) -> None:
        """Encode the end of the text again, and forget of the cache what is now cut otherwise."""
        shadow = telling.shadow
        ids = self._draft.encode(telling.text, begins=telling.fixed == 0)
        old = shadow.tokens[telling.fixed :]
        same = next(
            (i for i, (a, b) in enumerate(zip(old, ids, strict=False)) if a != b), min(len(old), len(ids))
        )
        shadow.tokens[telling.fixed + same :] = ids[same:]
        if not shadow.tokens:
            shadow.tokens.append(0)  # any context gives a valid draft
        if old:  # nothing is in the cache before that
            self._forget(shadow, telling.fixed + same)
        if len(telling.text) > _WINDOW:
            self._fix(telling)

    def _forget(self, shadow: Sequence, end: int) -> None:
        """Leave no more than so many tokens in the draft's cache."""
        runner = self.model.runner
        if runner.length(shadow.cache_slot) > end:
            runner.truncate(shadow.cache_slot, end)

    def _fix(self, telling: RetokenisedSequence) -> None:
        """Encode from now on less of the text: from a line or word about halfway on."""
        half = len(telling.text) - _WINDOW // 2
        cut = max(telling.text.rfind("\n", 0, half) + 1, telling.text.rfind(" ", 0, half))
        if cut <= 0:
            return
        before = self._draft.encode(telling.text[:cut], begins=telling.fixed == 0)
        own = telling.shadow.tokens[telling.fixed :]
        if own[: len(before)] == before:  # a place where both cuts agree
            telling.text, telling.fixed = telling.text[cut:], telling.fixed + len(before)


def continuation(tokenizer: Tokenizer, before: Seq[int], tokens: Seq[int]) -> str:
    """Return the text that tokens add behind others, without a last unfinished character."""
    if not tokens:
        return ""
    tail = list(before[-_TAIL:])
    base, whole = tokenizer.decode(tail), tokenizer.decode([*tail, *tokens])
    return whole[len(base) :].rstrip(_UNFINISHED) if whole.startswith(base) else ""


def retokenised_prefix(tokenizer: Tokenizer, before: Seq[int], text: str) -> list[int]:
    """Return tokens for a text that is to follow others, as many as read exactly so in that place.

    The text is encoded together with the last tokens before it: a tokenizer cuts it as it would there. Where
    it would have cut across the place where they end, the text is encoded by itself.

    Args:
        tokenizer: whose ids.
        before: tokens that stand; not changed.
        text: what is to follow.
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
