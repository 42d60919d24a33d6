"""Log-probabilities of prompts: their number in one response is bounded before the engine computes them."""

from __future__ import annotations

import pytest
from specclient_local.api.openai_request.logprob_bounds import check_prompt_logprobs, max_prompt_logprobs
from specclient_local.api.openai_request.parser import parse_request

from specclient.errors import BadRequestError
from specclient.types.inference_methods import COMPLETION
from specclient.types.request import Request


def parsed(**params):
    return parse_request(Request(COMPLETION, "local/demo", {"max_tokens": 1, **params}), "demo")


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"prompt": "word"}, 0),
        ({"prompt": "word", "logprobs": 5}, 0),
        ({"prompt": "word", "echo": True}, 0),
        ({"prompt": "word", "echo": True, "logprobs": 5}, 4 * 6),
        ({"prompt": [7] * 9, "prompt_logprobs": 0}, 9),
        ({"prompt": ["ab", "c", "\U0001f600"], "prompt_logprobs": 1, "n": 3}, (2 + 1 + 4) * 2 * 3),
        ({"prompt": "a" * 9999, "prompt_logprobs": 1}, 100 * 2),
    ],
)
def test_they_are_counted_by_prompt_choice_and_alternative(params, expected):
    request = parsed(**params)
    assert max_prompt_logprobs(request, request.prompts, 100) == expected


@pytest.mark.parametrize(
    ("params", "name"), [({"echo": True, "logprobs": 4}, "echo"), ({"prompt_logprobs": 4}, "prompt_logprobs")]
)
def test_more_than_the_limit_are_refused_by_the_parameters_name(params, name):
    request = parsed(prompt="a" * 10, n=2, **params)
    check_prompt_logprobs(request, request.prompts, 100, 100)
    with pytest.raises(BadRequestError, match=f"^{name} asks for up to 100 .* allowed are 99") as raised:
        check_prompt_logprobs(request, request.prompts, 100, 99)
    assert (raised.value.param, raised.value.code) == (name, "too_many_logprobs")
