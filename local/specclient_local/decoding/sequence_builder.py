"""Builds sequences from prompts and sampling parameters, and checks them against the loaded model."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Set
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field

from specclient.errors import BadRequestError, ContextOverflowError
from specclient.types.request_limits import RequestLimits
from specclient_local.model.architecture import DecoderConfig
from specclient_local.model.grammar import GrammarCompiler
from specclient_local.model.logits_processors import LogitPenalties, RequestLogitsProcessor, TokenMasks
from specclient_local.model.model_runner import ModelConfig
from specclient_local.model.tokenizer import Tokenizer
from specclient_local.request.params import Method, SamplingParams, prompt_limit
from specclient_local.request.sequence import PredictionProgress, RandomStream, Sequence
from specclient_local.request.validation import bad_parameter

Prompt = str | Seq[int]

_DRAFT = "the engine was loaded without a draft; load it with one (draft=, --draft)"
_HEADS = (
    "the engine was loaded without heads for {0!r}; load it with heads "
    "(heads=, --heads; for demo bundled:{1})"
)
_MISSING: dict[Method, str] = {
    "draft": _DRAFT,
    "union": _DRAFT,
    "medusa": _HEADS.format("medusa", "medusa"),
    "eagle": _HEADS.format("eagle", "eagle3"),
    "peagle": "the engine was loaded without P-EAGLE heads; load it with heads (heads=, --heads), which "
    "`specclient local train heads --kind peagle` trains",
    "mtp": "the engine was loaded without the model's MTP head; load it with method='mtp' (--heads with the "
    "model's own checkpoint) if it ships one",
    "layer_skip": "the engine was loaded without drafting layers; load it with some of the model's layers "
    "(layer_skip=, --layer-skip N)",
}
"""The end of the error message for each method whose draft, heads or layers are not loaded."""

#: Maximum length of a prediction, in multiples of the context; bounds the time that its encoding takes.
_PREDICTED_CONTEXTS = 16


@dataclass(frozen=True, slots=True)
class SequenceBuilder:
    """Builds sequences for one loaded model.

    Attributes:
        tokenizer: the model's tokenizer.
        config: vocabulary size, and start and end tokens.
        context: maximum number of tokens of prompt and answer together.
        method: the method of requests that name none.
        methods: the methods that a request may name.
        limits: limits on requests.
        adapters: names of the loaded adapters.
        grammars: compiles requests' grammars.
    """

    tokenizer: Tokenizer
    config: ModelConfig
    context: int
    method: Method
    methods: tuple[Method, ...]
    limits: RequestLimits = field(default_factory=RequestLimits)
    adapters: tuple[str, ...] = ()
    grammars: GrammarCompiler = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        grammars = GrammarCompiler(self.tokenizer, self.config.vocab_size, self.config.eos, self.limits)
        object.__setattr__(self, "grammars", grammars)

    def sequence(self, number: int, prompt: Prompt, params: SamplingParams, owner: str = "") -> Sequence:
        """Return the sequence of a request.

        Args:
            number: the engine's id for it.
            prompt: text or token ids.
            params: the request's parameters.
            owner: whose request it is.

        Raises:
            BadRequestError: the prompt, the method, a token id or a grammar is not usable with this model.
            ContextOverflowError: prompt and answer exceed the context.
            ConfigurationError: a grammar is given, but the library that compiles it is not installed.
        """
        method = params.method or ("prediction" if params.prediction is not None else self.method)
        if method not in self.methods:
            missing = _MISSING.get(
                method, f"the engine was loaded without {method!r}; load it with method={method!r}"
            )
            raise bad_parameter("method", method, f"one of {', '.join(self.methods)}: {missing}")
        if params.draft_tree is not None and isinstance(self.config, DecoderConfig) and self.config.delta:
            allowed = (
                f"None: a {self.config.model_type} model is recurrent in some layers and verifies chains only"
            )
            raise bad_parameter("draft_tree", params.draft_tree, allowed)
        tokens, limit = self.tokens(prompt, params)
        slides = params.overflow == "slide" and params.prompt_logprobs is None
        # A special token decodes to no text, so a stop string that names one ends the answer by its id.
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
            random=RandomStream(params.seed),
            logits_processor=self._logits_processor(tokens, params, ends),
            prediction=self._prediction(params.prediction) if method == "prediction" else None,
            window=self.context if slides else None,
            adapter=self._adapter(params.adapter),
            owner=owner,
        )
        if sequence.full:
            sequence.slide()
        return sequence

    def _adapter(self, name: str | None) -> int | None:
        """Return the number of an adapter."""
        if name is None:
            return None
        if name not in self.adapters:
            allowed = f"one of {', '.join(self.adapters)}, or None" if self.adapters else "None"
            raise bad_parameter(
                "adapter", name, f"{allowed}: load the engine with the adapter (adapters=) to use it"
            )
        return self.adapters.index(name)

    def tokens(self, prompt: Prompt, params: SamplingParams) -> tuple[list[int], int]:
        """Return a prompt's tokens and the maximum number of new ones.

        Raises:
            BadRequestError, ContextOverflowError: see :meth:`sequence`.
        """
        tokens = self._tokens(prompt, prompt_limit(self.context, params))
        least = max(params.min_tokens, int(params.max_tokens != 0))
        limit = self.context - len(tokens) if params.max_tokens is None else params.max_tokens
        slides = params.overflow == "slide" and params.prompt_logprobs is None
        if limit < least or (len(tokens) + limit > self.context and not slides):
            wanted = f"at least {least}" if params.max_tokens is None else str(params.max_tokens)
            raise ContextOverflowError(
                f"{len(tokens)} prompt tokens and {wanted} new ones exceed the context of {self.context}; "
                "shorten the prompt, lower max_tokens, drop the oldest tokens with overflow='slide', or load "
                "the engine with a larger context."
            )
        return tokens, limit

    def _logits_processor(
        self, prompt: list[int], params: SamplingParams, ends: Set[int]
    ) -> RequestLogitsProcessor | None:
        """Return the request's logits processor; None if no parameter needs one."""
        self._ids("logit_bias", params.logit_bias or ())
        words = self._bad_words(params.bad_words or ())
        penalties = LogitPenalties(params, prompt) if LogitPenalties.needed(params) else None
        masks = TokenMasks(ends, params.min_tokens, words, prompt) if params.min_tokens or words else None
        grammar = self.grammars.grammar(params, ends)
        if penalties is None and masks is None and grammar is None:
            return None
        return RequestLogitsProcessor(penalties, masks, grammar)

    def _bad_words(self, words: Iterable[str]) -> set[tuple[int, ...]]:
        """Return the token sequences of words, both at the start of a text and after a space.

        End tokens are never excluded, as in ``transformers``.
        """
        spellings = [space + word.removeprefix(" ") for word in words for space in ("", " ")]
        sequences = {(*self.tokenizer.encode(word, begins=False),) for word in spellings if word}
        return sequences - {(), *((token,) for token in self.config.eos)}

    def _prediction(self, prediction: Prompt | None) -> PredictionProgress:
        """Encode a predicted answer. It continues the prompt, so it gets no start token.

        It may be longer than the context, because the answer may skip parts of it.
        """
        if isinstance(prediction, str):
            self.tokenizer.check_length("prediction", prediction, _PREDICTED_CONTEXTS * self.context)
            prediction = self.tokenizer.encode(prediction, begins=False)
        return PredictionProgress(self._ids("prediction", prediction))

    def _tokens(self, prompt: Prompt, most: int) -> list[int]:
        """Encode a prompt; an empty one becomes the start token.

        A prompt that certainly has more than ``most`` tokens is refused before it is encoded. The caller
        checks the exact number.
        """
        if isinstance(prompt, str):
            self.tokenizer.check_length("prompt", prompt, most)
        tokens = self._ids("prompt", self.tokenizer.encode(prompt) if isinstance(prompt, str) else prompt)
        bos = self.config.bos
        if tokens:
            return tokens
        if bos is None:
            raise BadRequestError(
                "the prompt is empty and the model has no start token; the prompt must contain some text."
            )
        return [bos]

    def _ids(self, name: str, value: object) -> list[int]:
        """Return the token ids of parameter ``name`` after checking that each is in the vocabulary."""
        vocab = self.config.vocab_size
        texts = "text, or " if name in ("prompt", "prediction") else ""
        allowed = f"{texts}token ids from 0 to {vocab - 1}"
        if not isinstance(value, Iterable):
            raise bad_parameter(name, value, allowed)
        tokens: list[int] = []
        for token in value:
            if isinstance(token, bool) or not hasattr(token, "__index__"):
                raise bad_parameter(name, token, allowed)
            tokens.append(operator.index(token))  # accepts integers of numpy and torch
            if not 0 <= tokens[-1] < vocab:
                raise bad_parameter(name, token, allowed)
        return tokens
