"""The embedder: one thread that computes the batches of all requests in turn."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from specclient.errors import BadRequestError, ContextOverflowError, EngineError
from specclient.runtime.forks import register_fork_reset
from specclient_local.embedding.batches import batches
from specclient_local.embedding.text_encoder import TextEncoder
from specclient_local.embedding.text_tokens import TextTokenizer, TextTokens
from specclient_local.model.torch_threads import computing_with

Vectors = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class EmbeddedTexts:
    """The embeddings of a request.

    Attributes:
        vectors: ``[texts, dimensions]`` float32.
        tokens: number of tokens of all texts, including special ones and those of prompts.
        engine_s: seconds that the model worked.
    """

    vectors: Vectors
    tokens: int
    engine_s: float


class Embedder:
    """A loaded embedding model. All methods are thread-safe.

    A forked child may continue to use it; requests in flight stay with the parent.

    Args:
        encoder: the model.
        tokenizer: its tokenizer.
        limit: maximum tokens of a text.
        batch_tokens: maximum tokens of a batch, with padding.
        threads: torch threads while it computes.
        clock: returns monotonic seconds.

    Attributes:
        limit: maximum tokens of a text.
        unfinished: the number of requests that wait or run.
        busy_s: seconds its model has worked so far.
    """

    def __init__(
        self,
        encoder: TextEncoder,
        tokenizer: TextTokenizer,
        *,
        limit: int,
        batch_tokens: int,
        threads: int,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._encoder, self._tokenizer = encoder, tokenizer
        self.limit, self._batch_tokens, self._threads = limit, batch_tokens, threads
        self._clock = clock
        self._closed = False
        self.busy_s = 0.0
        self._idle()
        register_fork_reset(self)

    @property
    def dimensions(self) -> int:
        """Size of an embedding."""
        return self._encoder.layout.dimensions

    def reset_after_fork(self) -> None:
        """Forget the thread and the requests, which belong to the parent."""
        self._threads = 1  # torch's thread pool does not survive the fork
        self._idle()

    def _idle(self) -> None:
        """Set the state without requests and without a thread."""
        self._thread: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()
        self.unfinished = 0

    def prompt(self, name: str | None) -> str:
        """Return the text that is put before inputs.

        Args:
            name: name of one of the checkpoint's prompts; None for its default one.

        Raises:
            BadRequestError: no prompt has this name.
        """
        layout = self._encoder.layout
        name = layout.default_prompt if name is None else name
        if name is None:
            return ""
        if name not in layout.prompts:
            known = ", ".join(sorted(layout.prompts)) or "none"
            error = BadRequestError(f"prompt_name is {name!r}; the prompts of the model are {known}.")
            error.param = "prompt_name"
            raise error
        return layout.prompts[name]

    def tokens_of(self, text: str, prompt: str = "", *, truncate: int | None = None) -> TextTokens:
        """Return the tokens of a text.

        Args:
            text: the text to embed.
            prompt: the prompt that is put before it.
            truncate: number of tokens to which a longer text is cut; None refuses a text beyond
                :attr:`limit`.

        Raises:
            ContextOverflowError: the text is too long.
        """
        limit = self.limit if truncate is None else min(truncate, self.limit)
        return self._tokenizer.encode(text, prompt, limit, truncate=truncate is not None)

    def checked(self, ids: Sequence[int], *, truncate: int | None = None) -> TextTokens:
        """Check token ids that a request gives in place of a text, and return them.

        Args:
            ids: the token ids.
            truncate: as in :meth:`tokens_of`.

        Raises:
            BadRequestError: an id is not in the model's vocabulary.
            ContextOverflowError: there are too many ids.
        """
        most = self._encoder.vocabulary
        wrong = next((token for token in ids if not 0 <= token < most), None)
        if wrong is not None:
            error = BadRequestError(f"input has the token id {wrong}; the model's are 0 to {most - 1}.")
            error.param = "input"
            raise error
        limit = self.limit if truncate is None else min(truncate, self.limit)
        if len(ids) > limit and truncate is None:
            raise ContextOverflowError(
                f"an input has {len(ids)} tokens, but the model takes {limit}: shorten it, or set "
                "truncate_prompt_tokens to -1 to embed its beginning alone."
            )
        return TextTokens(tuple(ids[:limit]))

    async def embed(self, texts: Sequence[TextTokens], dimensions: int | None = None) -> EmbeddedTexts:
        """Return the embeddings of texts.

        Batches of concurrent requests are computed in turn. A cancelled request ends after its current batch.

        Args:
            texts: the tokens of each text.
            dimensions: number of leading components of each embedding to keep; None keeps all. If the model's
                embeddings have length 1, the shortened ones are scaled to length 1 again.

        Raises:
            EngineError: the embedder is closed, or the model failed.
        """
        kept = self.dimensions if dimensions is None else dimensions
        vectors = np.empty((len(texts), kept), dtype=np.float32)
        engine_s = 0.0
        self._count(1)
        try:
            for batch in batches([len(text.ids) for text in texts], self._batch_tokens):
                work = self._submit([texts[index] for index in batch], kept)
                computed, took_s = await asyncio.wrap_future(work)
                vectors[batch] = computed
                engine_s += took_s
        finally:
            self._count(-1)
        return EmbeddedTexts(vectors, sum(len(text.ids) for text in texts), engine_s)

    def close(self) -> None:
        """Refuse further requests, and wait for the batch that runs. May be called twice."""
        with self._lock:
            self._closed, thread = True, self._thread
        if thread is not None:
            thread.shutdown(wait=True, cancel_futures=True)

    def _count(self, change: int) -> None:
        with self._lock:
            self.unfinished += change

    def _submit(self, texts: Sequence[TextTokens], kept: int) -> Future[tuple[Vectors, float]]:
        with self._lock:
            if self._closed:
                raise EngineError("the embedding model was closed before the request was complete.")
            if self._thread is None:
                self._thread = ThreadPoolExecutor(1, thread_name_prefix="specclient-embedder")
            return self._thread.submit(self._compute, texts, kept)

    def _compute(self, texts: Sequence[TextTokens], kept: int) -> tuple[Vectors, float]:
        started_s = self._clock()
        try:
            with computing_with(self._threads):
                vectors = self._encoder.embed(texts)[:, :kept]
                if kept < self.dimensions and self._encoder.layout.normalized:
                    vectors = torch.nn.functional.normalize(vectors, dim=-1)
        except (RuntimeError, IndexError) as error:  # of torch, such as one about memory
            raise EngineError(f"the embedding model failed: {error}") from error
        took_s = self._clock() - started_s
        self.busy_s += took_s
        return vectors.numpy(), took_s
