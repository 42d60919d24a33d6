"""A backend counts prompts by the model's own tokenizer, without its weights, as it then reads them."""

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
async def test_a_count_is_what_the_answer_s_usage_says(folder, request_):
    backend = create({"models": {"m": {"path": folder}}, "threads": 1})
    assert isinstance(backend, SupportsTokenCount)
    before = backend.count(request_, "m")
    answer, _ = await backend.complete(request_, "m")
    assert before == backend.count(request_, "m") == answer.usage.prompt_tokens
    await backend.aclose()


def test_no_weights_are_loaded_for_it(folder):
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
def test_a_request_that_it_cannot_lay_out_has_no_count(folder, params):
    backend = create({"models": {"m": {"path": folder}}})
    count = backend.count(Request(inference_methods.CHAT, "local/m", params), "m")
    assert count is None or count > 0


def test_a_checkpoint_that_is_not_here_is_not_fetched_for_it(tmp_path):
    backend = create({"models": {"far": {"path": "owner/name"}, "empty": {"path": str(tmp_path)}}})
    assert backend.count(REQUESTS[0], "far") is None
    assert backend.count(REQUESTS[0], "empty") is None
    with pytest.raises(NotFoundError, match="local/none is unknown"):
        backend.count(REQUESTS[0], "none")
