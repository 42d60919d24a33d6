"""The embedder: requests in turn, cancellation, closing, forks."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Iterator

import numpy as np
import pytest
from specclient_local.embedding.embedder import Embedder
from specclient_local.embedding.text_tokens import TextTokens
from specclient_local.loading.embedding_loader import check_embedding_memory, load_embedder, plan_embedding
from specclient_local.loading.embedding_options import EmbeddingOptions

from specclient.errors import BadRequestError, ConfigurationError, ContextOverflowError, EngineError

TEXTS = ["def fibonacci(n):", "a", "return n", "the quick brown fox"]


@pytest.fixture
def embedder(embedding_checkpoint) -> Iterator[Embedder]:
    folder = embedding_checkpoint(kind="bert", pooling="mean", prompts={"query": "q: "})
    made = load_embedder(folder, EmbeddingOptions(threads=1))
    yield made
    made.close()


def tokens(embedder: Embedder, texts: list[str]) -> list[TextTokens]:
    return [embedder.tokens_of(text) for text in texts]


class Gate:
    """Holds the model's passes until it is opened, and records the texts of each."""

    def __init__(self, embedder: Embedder) -> None:
        self.passes: list[int] = []
        self.entered, self.open = threading.Semaphore(0), threading.Semaphore(0)
        self._embed, encoder = embedder._encoder.embed, embedder._encoder
        encoder.embed = self._held

    def _held(self, texts):
        self.passes.append(len(texts))
        self.entered.release()
        self.open.acquire()
        return self._embed(texts)


def test_batches_do_not_change_the_embeddings(embedder: Embedder) -> None:
    whole = asyncio.run(embedder.embed(tokens(embedder, TEXTS)))
    embedder._batch_tokens = 1
    alone = asyncio.run(embedder.embed(tokens(embedder, TEXTS)))
    np.testing.assert_allclose(alone.vectors, whole.vectors, rtol=0, atol=1e-6)
    assert whole.tokens == alone.tokens == sum(len(text.ids) for text in tokens(embedder, TEXTS))
    assert whole.engine_s > 0
    assert embedder.busy_s == pytest.approx(whole.engine_s + alone.engine_s)


def test_requests_take_turns(embedder: Embedder) -> None:
    embedder._batch_tokens = 1
    order: list[str] = []
    compute = embedder._compute

    def noted(texts, kept):
        order.append("long" if len(texts[0].ids) > 3 else "short")
        return compute(texts, kept)

    embedder._compute = noted

    async def both() -> None:
        await asyncio.gather(
            embedder.embed(tokens(embedder, ["xyz" * 3] * 6)), embedder.embed(tokens(embedder, ["a"]))
        )

    asyncio.run(both())
    assert order.index("short") <= 1
    assert order.count("long") == 6


def test_a_cancelled_request_computes_no_further_batch(embedder: Embedder) -> None:
    embedder._batch_tokens = 1
    gate = Gate(embedder)

    async def cancel() -> None:
        task = asyncio.create_task(embedder.embed(tokens(embedder, TEXTS)))
        await asyncio.to_thread(gate.entered.acquire)
        assert embedder.unfinished == 1
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert embedder.unfinished == 0

    asyncio.run(cancel())
    gate.open.release(10)
    assert asyncio.run(embedder.embed(tokens(embedder, ["a"]))).vectors.shape == (1, 32)
    assert gate.passes == [1, 1]  # the first batch of the cancelled request, and the next request


def test_a_closed_embedder_refuses_requests(embedder: Embedder) -> None:
    asyncio.run(embedder.embed(tokens(embedder, ["a"])))
    embedder.close()
    embedder.close()
    with pytest.raises(EngineError, match="was closed"):
        asyncio.run(embedder.embed(tokens(embedder, ["a"])))
    assert embedder.unfinished == 0


def test_a_failing_model_is_an_engine_error(embedder: Embedder) -> None:
    def fail(texts):
        raise RuntimeError("out of memory")

    embedder._encoder.embed = fail
    with pytest.raises(EngineError, match="the embedding model failed: out of memory"):
        asyncio.run(embedder.embed(tokens(embedder, ["a"])))


def test_token_ids_are_checked(embedder: Embedder) -> None:
    assert embedder.checked([5, 6]).ids == (5, 6)
    assert embedder.checked([5] * 100, truncate=64).ids == (5,) * 64
    with pytest.raises(BadRequestError, match="input has the token id 300; the model's are 0 to 299"):
        embedder.checked([5, 300])
    with pytest.raises(ContextOverflowError, match="an input has 65 tokens, but the model takes 64"):
        embedder.checked([5] * 65)


def test_prompts_are_named(embedder: Embedder) -> None:
    assert (embedder.prompt(None), embedder.prompt("query")) == ("", "q: ")
    with pytest.raises(BadRequestError, match=r"prompt_name is 'passage'; the prompts .* are query"):
        embedder.prompt("passage")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
@pytest.mark.filterwarnings("ignore:This process")
def test_a_forked_child_goes_on(embedder: Embedder) -> None:
    expected = asyncio.run(embedder.embed(tokens(embedder, TEXTS))).vectors
    gate = Gate(embedder)
    running = threading.Thread(target=lambda: asyncio.run(embedder.embed(tokens(embedder, TEXTS))))
    running.start()
    gate.entered.acquire()  # the parent's thread is in a pass
    child = os.fork()
    if child == 0:
        signal.alarm(60)  # a child that waits for a thread of its parent would do so forever
        status = 1
        try:
            embedder._encoder.embed = gate._embed
            found = asyncio.run(embedder.embed(tokens(embedder, TEXTS))).vectors
            status = 0 if np.allclose(found, expected, atol=1e-6) and embedder.unfinished == 0 else 2
        finally:
            os._exit(status)
    gate.open.release(10)
    running.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_model_that_does_not_fit_is_refused(embedding_checkpoint) -> None:
    folder = embedding_checkpoint(kind="bert", pooling="mean")
    plan = plan_embedding(folder, EmbeddingOptions(), lambda _: 10_000)
    assert not plan.fits
    assert plan.weights == 4 * plan.parameters
    with pytest.raises(ConfigurationError, match=r"weights take .* has 0\.0 MiB free; it fits in no data"):
        check_embedding_memory(folder, EmbeddingOptions(), lambda _: 10_000)
    assert plan_embedding(folder, EmbeddingOptions(dtype="bfloat16")).weights * 2 == plan.weights


def test_the_advice_for_a_model_that_does_not_fit_suffices(embedding_checkpoint) -> None:
    folder = embedding_checkpoint(kind="bert", pooling="mean")
    half = plan_embedding(folder, EmbeddingOptions(dtype="bfloat16")).total
    with pytest.raises(ConfigurationError, match="free; it fits with dtype 'bfloat16'"):
        check_embedding_memory(folder, EmbeddingOptions(), lambda _: half)
    check_embedding_memory(folder, EmbeddingOptions(dtype="bfloat16"), lambda _: half)
    with pytest.raises(ConfigurationError, match="it fits in no data type"):
        check_embedding_memory(folder, EmbeddingOptions(), lambda _: half - 1)


def test_a_context_beyond_the_models_is_refused(embedding_checkpoint) -> None:
    folder = embedding_checkpoint(kind="bert", pooling="mean")
    with pytest.raises(ConfigurationError, match="context is 65; allowed is 1 to 64"):
        load_embedder(folder, EmbeddingOptions(context=65))
