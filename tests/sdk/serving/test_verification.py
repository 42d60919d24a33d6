"""The server as a verifier: predictions, prompt log-probabilities, and remote verification of drafts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import openai
import pytest
from gateway_server import Served

from specclient.config import Settings

Connect = Callable[[str], openai.OpenAI]
ASK: Any = {"max_tokens": 40, "temperature": 0}
PROMPT = "def f(x):"


@pytest.fixture
def client(connect: Connect, local_server: Served) -> openai.OpenAI:
    return connect(local_server.base_url)


def _chat(client: openai.OpenAI, *, stream: bool, **more: Any) -> tuple[str, Any]:
    asked = {"model": "local/demo-target", "messages": [{"role": "user", "content": PROMPT}], **ASK, **more}
    if not stream:
        answer = client.chat.completions.create(**asked)
        return answer.choices[0].message.content or "", answer.usage
    options = {"include_usage": True}
    chunks = list(client.chat.completions.create(stream=True, stream_options=options, **asked))
    return "".join(c.choices[0].delta.content or "" for c in chunks if c.choices), chunks[-1].usage


@pytest.mark.parametrize("stream", [False, True])
def test_a_prediction_is_verified(client: openai.OpenAI, stream: bool) -> None:
    plain, _ = _chat(client, stream=stream)

    def predicted(text: str) -> Any:
        found, usage = _chat(client, stream=stream, prediction={"type": "content", "content": text})
        assert found == plain
        return usage.completion_tokens_details

    right, wrong = predicted(plain), predicted("nothing of the kind is said")
    assert right.accepted_prediction_tokens > 20
    assert right.rejected_prediction_tokens <= 1
    assert wrong.accepted_prediction_tokens < right.accepted_prediction_tokens
    half = predicted(plain[: len(plain) // 2] + "@@@@ @@@@ @@@@")
    assert 0 < half.accepted_prediction_tokens < right.accepted_prediction_tokens
    assert half.rejected_prediction_tokens > 0


def test_a_prediction_of_an_unknown_type_is_refused(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="prediction"):
        _chat(client, stream=False, prediction={"type": "image", "content": "x"})


def test_log_probabilities_of_answer_and_prompt_are_returned(client: openai.OpenAI) -> None:
    more = {"prompt_logprobs": 1, "return_token_ids": True}
    answer = client.completions.create(
        model="local/demo-target", prompt=PROMPT, max_tokens=4, temperature=0, logprobs=2, extra_body=more
    )
    choice: Any = answer.choices[0]
    assert len(choice.logprobs.tokens) == len(choice.token_ids) == 4
    assert all(value <= 0 for value in choice.logprobs.token_logprobs)
    first, *scored = choice.prompt_logprobs
    assert first is None
    assert len(scored) + 1 == len(choice.prompt_token_ids) == answer.usage.prompt_tokens  # type: ignore[union-attr]
    for number, entry in zip(choice.prompt_token_ids[1:], scored, strict=True):
        assert entry[str(number)]["rank"] >= 1

    echoed = client.completions.create(
        model="local/demo-target", prompt=choice.prompt_token_ids, max_tokens=0, echo=True, logprobs=1,
        temperature=0,
    )  # fmt: skip
    assert echoed.choices[0].text.endswith(PROMPT)
    assert echoed.choices[0].logprobs is not None
    reported = [
        entry[str(n)]["logprob"] for n, entry in zip(choice.prompt_token_ids[1:], scored, strict=True)
    ]
    assert echoed.choices[0].logprobs.token_logprobs[1:] == pytest.approx(reported, abs=1e-4)  # type: ignore[index]


@pytest.mark.parametrize("stream", [False, True])
def test_a_gateway_verifies_its_drafts_on_another_server(
    connect: Connect, local_server: Served, client: openai.OpenAI, stream: bool
) -> None:
    alone = client.completions.create(model="local/demo-target", prompt=PROMPT, **ASK).choices[0].text
    tables = {"ledger": "off", "providers": {"specclient": {"base_url": local_server.base_url}}}
    tables["local"] = {"threads": 1}
    ours = {"strategy": "remote", "draft": "local/demo", "depth": 4, "meta": True}
    with Served(Settings.model_validate(tables)) as gateway:
        answer: Any = connect(gateway.base_url).completions.create(
            model="specclient/local/demo-target", prompt=PROMPT, stream=stream,
            extra_body={"specclient": ours}, **ASK,
        )  # fmt: skip
        parts = list(answer) if stream else [answer]
    assert "".join(part.choices[0].text for part in parts if part.choices) == alone
    reported = parts[-1].model_extra["specclient"]["speculation"]
    assert reported["method"] == "remote"
    assert 0 < reported["accepted"] <= reported["drafted"]
