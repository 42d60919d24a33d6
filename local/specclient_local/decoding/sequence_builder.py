"""Turn prompts and settings into sequences that a loaded model can run."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Set
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field

from specclient.errors import BadRequestError, ContextOverflowError
from specclient_local.model.grammar import GrammarCompiler
from specclient_local.model.logits_processors import LogitPenalties, RequestLogitsProcessor, TokenMasks
from specclient_local.model.model_runner import ModelConfig
from specclient_local.model.tokenizer import Tokenizer
from specclient_local.request.params import Method, SamplingParams
from specclient_local.request.sequence import PredictionProgress, RandomStream, Sequence
from specclient_local.request.validation import bad_parameter

Prompt = str | Seq[int]

_DRAFT = "the engine was loaded without a draft; load it with one (draft=, --draft)"
_HEADS = (
    "the engine was loaded without what {0!r} drafts with; load it with heads "
    "(heads=, --heads; of demo bundled:{1})"
)
_LACKING: dict[Method, str] = {
    "draft": _DRAFT,
    "union": _DRAFT,
    "medusa": _HEADS.format("medusa", "medusa"),
    "eagle": _HEADS.format("eagle", "eagle3"),
    "layer_skip": "the engine was loaded without layers that draft; load it with some of the model's own "
    "(layer_skip=, --layer-skip N)",
}
"""What an engine lacks for a method that it has not, and the way to it; it has all others always."""


@dataclass(frozen=True, slots=True)
class SequenceBuilder:
    """What is to be known of a loaded model to take requests for it.

    Attributes:
        config: its shape, and the tokens that end an answer.
        context: most tokens of prompt and answer together.
        method: what a request gets that names none.
        methods: what it may name.
    """

    tokenizer: Tokenizer
    config: ModelConfig
    context: int
    method: Method
    methods: tuple[Method, ...]
    _grammars: GrammarCompiler = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        grammars = GrammarCompiler(self.tokenizer, self.config.vocab_size, self.config.eos)
        object.__setattr__(self, "_grammars", grammars)

    def sequence(self, number: int, prompt: Prompt, params: SamplingParams) -> Sequence:
        """Turn a prompt into a request these models can run.

        Raises:
            BadRequestError: a prompt, method, token id or grammar they have no use for.
            ContextOverflowError: prompt and answer do not fit the context.
            ConfigurationError: a grammar, but not the library that reads it.
        """
        method = params.method or ("prediction" if params.prediction is not None else self.method)
        if method not in self.methods:
            raise bad_parameter("method", method, f"one of {', '.join(self.methods)}: {_LACKING[method]}")
        tokens = self._tokens(prompt)
        least = max(params.min_tokens, int(params.max_tokens != 0))
        limit = self.context - len(tokens) if params.max_tokens is None else params.max_tokens
        slides = params.overflow == "slide" and params.prompt_logprobs is None
        if limit < least or (len(tokens) + limit > self.context and not slides):
            wanted = f"at least {least}" if params.max_tokens is None else str(params.max_tokens)
            raise ContextOverflowError(
                f"{len(tokens)} prompt tokens and {wanted} new ones exceed the context of {self.context}; "
                "shorten the prompt, lower max_tokens, let the oldest half go with overflow='slide', or load "
                "the engine with a larger context."
            )
        # A special token gives no text in which a stop string could be found: it ends the answer itself.
        stops = {token for stop in params.stop or () if (token := self.tokenizer.special(stop)) is not None}
        ends = stops.union(self.config.eos, self._ids("stop_token_ids", params.stop_token_ids or ()))
        sequence = Sequence(
            id=number,
            tokens=tokens,
            prompt_tokens=len(tokens),
            params=params,
            method=method,
            limit=limit,
            eos=ends,
            dice=RandomStream(params.seed),
            rules=self._rules(tokens, params, ends),
            prediction=self._predicted(params.prediction) if method == "prediction" else None,
            window=self.context if slides else None,
        )
        if sequence.full:
            sequence.slide()
        return sequence

    def _rules(
        self, prompt: list[int], params: SamplingParams, ends: Set[int]
    ) -> RequestLogitsProcessor | None:
        """Return what shapes the logits of an answer, or None where nothing of it is asked."""
        self._ids("logit_bias", params.logit_bias or ())
        words = self._bad_words(params.bad_words or ())
        weights = LogitPenalties(params, prompt) if LogitPenalties.asked(params) else None
        masks = TokenMasks(ends, params.min_tokens, words, prompt) if params.min_tokens or words else None
        grammar = self._grammars.grammar(params, ends)
        if weights is None and masks is None and grammar is None:
            return None
        return RequestLogitsProcessor(weights, masks, grammar)

    def _bad_words(self, words: Iterable[str]) -> set[tuple[int, ...]]:
        """Return the token sequences of words where a text begins, and after a space.

        An end token may come whatever is asked, as in ``transformers``.
        """
        written = [space + word.removeprefix(" ") for word in words for space in ("", " ")]
        sequences = {(*self.tokenizer.encode(word, begins=False),) for word in written if word}
        return sequences - {(), *((token,) for token in self.config.eos)}

    def _predicted(self, prediction: Prompt | None) -> PredictionProgress:
        """Encode what is expected of an answer: text that goes on, so without a start token."""
        if isinstance(prediction, str):
            prediction = self.tokenizer.encode(prediction, begins=False)
        return PredictionProgress(self._ids("prediction", prediction))

    def _tokens(self, prompt: Prompt) -> list[int]:
        """Encode a prompt; an empty one is the start token alone."""
        tokens = self._ids("prompt", self.tokenizer.encode(prompt) if isinstance(prompt, str) else prompt)
        bos = self.config.bos
        if tokens:
            return tokens
        if bos is None:
            raise BadRequestError("the prompt is empty and the model has no start token; give it some text.")
        return [bos]

    def _ids(self, name: str, given: object) -> list[int]:
        """Check token ids."""
        vocab = self.config.vocab_size
        texts = "text, or " if name in ("prompt", "prediction") else ""
        allowed = f"{texts}token ids from 0 to {vocab - 1}"
        if not isinstance(given, Iterable):
            raise bad_parameter(name, given, allowed)
        tokens: list[int] = []
        for token in given:
            if isinstance(token, bool) or not hasattr(token, "__index__"):
                raise bad_parameter(name, token, allowed)
            tokens.append(operator.index(token))  # of numpy's and torch's integers too
            if not 0 <= tokens[-1] < vocab:
                raise bad_parameter(name, token, allowed)
        return tokens
