"""Prompt token counts by the model's tokenizer, without loading weights."""

from __future__ import annotations

import subprocess
import sys

import pytest
from specclient_local.api.backend import create

from specclient.errors import NotFoundError
from specclient.types import inference_methods
from specclient.types.backend import SupportsTokenCount
from specclient.types.request import Request

pytestmark = pytest.mark.anyio

REQUESTS = [
    Request(
        inference_methods.CHAT, "local/m", {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}
    ),
    Request(inference_methods.COMPLETION, "local/m", {"prompt": "def fibonacci(n):", "max_tokens": 2}),
    Request(inference_methods.COMPLETION, "local/m", {"prompt": [5, 6, 7], "max_tokens": 2}),
]


@pytest.fixture
def folder(checkpoint):
    return str(checkpoint(eos_token_id=None))


@pytest.mark.parametrize("request_", REQUESTS, ids=["chat", "text", "ids"])
async def test_a_count_equals_the_prompt_tokens_in_the_usage(folder, request_):
    backend = create({"models": {"m": {"path": folder}}, "threads": 1})
    assert isinstance(backend, SupportsTokenCount)
    before = backend.count(request_, "m")
    answer, _ = await backend.complete(request_, "m")
    assert before == backend.count(request_, "m") == answer.usage.prompt_tokens
    await backend.aclose()


def test_counting_does_not_import_torch(folder):
    code = (
        "import sys; from specclient_local.api.backend import create;"
        "from specclient.types import inference_methods;"
        "from specclient.types.request import Request;"
        f"backend = create({{'models': {{'m': {{'path': {folder!r}}}}}}});"
        "assert backend.count(Request(inference_methods.COMPLETION, 'local/m', {'prompt': 'x y'}), 'm') > 0;"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    "params",
    [
        {"messages": 5},
        {"messages": [{"role": "user"}]},
        {"messages": []},
        {"messages": [{"role": "user", "content": "hi"}], "max_tokens": -1},
    ],
)
def test_counting_an_invalid_request_does_not_raise(folder, params):
    backend = create({"models": {"m": {"path": folder}}})
    count = backend.count(Request(inference_methods.CHAT, "local/m", params), "m")
    assert count is None or count > 0


def test_counting_downloads_no_checkpoint(tmp_path):
    backend = create({"models": {"far": {"path": "owner/name"}, "empty": {"path": str(tmp_path)}}})
    assert backend.count(REQUESTS[0], "far") is None
    assert backend.count(REQUESTS[0], "empty") is None
    with pytest.raises(NotFoundError, match="local/none is unknown"):
        backend.count(REQUESTS[0], "none")
