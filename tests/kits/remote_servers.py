"""Loopback servers that score prompts with the bundled target, in the response formats of various servers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from loopback_server import Behaviour, Received, Wire, reply
from specclient_local.api.backend import BUNDLED, LocalBackend

from specclient.types import inference_methods
from specclient.types.request import Request

TARGET = "demo-target"
DRAFT = f"local/{BUNDLED / 'draft'}"

PROMPTS = (
    "def fibonacci(n):\n",
    "class Stack:\n    def __init__(self):\n        self.",
    "import os\n\n\ndef read(path):\n    with open(path) as",
    "# é ü naïve ☃ snow\ndef f(text):\n    return '",
    "for key, value in sorted(",
    "try:\n    import json\nexcept ImportError:\n",
    '"""A module that',
    "def test_add(self):\n    self.assertEqual(",
    "x = [\n    1,\n    2,\n",
    "print('日本語のテスト', ",
)


class Scorer:
    """Scores prompts with the bundled target, with all details that it can report.

    The same request is computed once: servers ask for the text of a prompt beside its scores, and tests send
    the same prompts.

    Attributes:
        largest: the largest number of new tokens requested by a single request.
    """

    def __init__(self, backend: LocalBackend) -> None:
        self._backend = backend
        self._known: dict[str, str] = {}
        self.largest = 0

    async def score(self, prompt: Any, count: int, top: int, stop: Any = None) -> dict[str, Any]:
        self.largest = max(self.largest, count)
        params = {
            "prompt": prompt, "max_tokens": count, "temperature": 0, "echo": True, "logprobs": top,
            "prompt_logprobs": top, "return_token_ids": True, "stop": stop,
        }  # fmt: skip
        key = repr(params)
        if key not in self._known:
            request = Request(inference_methods.COMPLETION, f"local/{TARGET}", params)
            answer, _ = await self._backend.complete(request, TARGET)
            self._known[key] = answer.model_dump_json()
        scored = json.loads(self._known[key])
        choice = scored["choices"][0]
        size = len(choice["prompt_token_ids"])
        legacy = choice["logprobs"]
        return {
            "ids": choice["prompt_token_ids"],
            "new": choice["token_ids"],
            "rows": list(zip(legacy["token_ids"], legacy["tokens"], legacy["token_logprobs"], strict=True)),
            "tops": legacy["top_logprobs"],
            "ranked": choice["prompt_logprobs"],
            "text": choice["text"],
            "echo": size,
            "finish": choice["finish_reason"],
            "usage": scored["usage"],
        }


def drafting(backend: LocalBackend) -> Behaviour:
    """Answer completions with the bundled draft."""

    async def run(received: Received, wire: Wire) -> None:
        payload = received.json
        request = Request(
            inference_methods.COMPLETION, DRAFT, {k: v for k, v in payload.items() if k != "model"}
        )
        answer, _ = await backend.complete(request, DRAFT.removeprefix("local/"))
        await reply(200, json.loads(answer.model_dump_json()))(received, wire)

    return run


def _new_text(scored: Mapping[str, Any], prompt: Any, decoded: str | None = None) -> str:
    """Return the text without the echoed prompt; a prompt of ids is echoed as its decoded text."""
    before = prompt if isinstance(prompt, str) else decoded
    assert before is not None
    assert scored["text"].startswith(before)
    return str(scored["text"][len(before) :])


Change = Callable[[int, dict[str, Any], dict[str, Any]], tuple[int, Any] | None]


def vllm(scorer: Scorer, change: Change = lambda *_: None) -> Behaviour:
    """Answer as vLLM's completions endpoint.

    Args:
        scorer: the target.
        change: called with the number of the request (from 1), the request body and the response's choice. It
            may modify the choice, or return a status and a body to send instead.
    """
    count = 0

    async def run(received: Received, wire: Wire) -> None:
        nonlocal count
        count += 1
        payload = received.json
        scored = await scorer.score(payload["prompt"], payload["max_tokens"], 1, payload.get("stop"))
        decoded = await scorer.score(scored["ids"], 0, 1)
        choice = {
            "index": 0,
            "text": scored["text"][len(decoded["text"]) :],
            "finish_reason": scored["finish"],
            "logprobs": None,
            "token_ids": scored["new"],
            "prompt_token_ids": scored["ids"],
            "prompt_logprobs": scored["ranked"] if payload.get("prompt_logprobs") else None,
        }
        other = change(count, payload, choice)
        await (_completion(payload, choice, scored) if other is None else reply(*other))(received, wire)

    return run


def sglang(scorer: Scorer) -> Behaviour:
    """Answer as SGLang's ``/generate``."""

    async def run(received: Received, wire: Wire) -> None:
        if received.path != "/generate":
            return await reply(404, {"error": {"message": received.path}})(received, wire)
        payload = received.json
        prompt = payload.get("input_ids") or payload["text"]
        sampling = payload["sampling_params"]
        assert sampling["temperature"] == 0
        scored = await scorer.score(prompt, sampling["max_new_tokens"], 1, sampling.get("stop"))
        start = payload["logprob_start_len"]
        rows = [[value, number, text] for number, text, value in scored["rows"]]
        inputs = rows[: scored["echo"]][start:]
        inputs[0] = [None, *inputs[0][1:]]
        tops = [[]] + [
            [
                [row["logprob"], int(key), row["decoded_token"]]
                for key, row in entry.items()
                if row["rank"] == 1
            ]
            for entry in scored["ranked"][start + 1 :]
        ]
        decoded = await scorer.score(prompt, 0, 1)
        meta = {
            "input_token_logprobs": inputs,
            "input_top_logprobs": tops if payload.get("top_logprobs_num") else None,
            "output_token_logprobs": rows[scored["echo"] :],
            "finish_reason": {"type": scored["finish"]},
            "prompt_tokens": scored["usage"]["prompt_tokens"],
            "completion_tokens": scored["usage"]["completion_tokens"],
        }
        body = {
            "text": _new_text(scored, prompt, decoded["text"]),
            "output_ids": scored["new"],
            "meta_info": meta,
        }
        return await reply(200, body)(received, wire)

    return run


def fireworks(scorer: Scorer, *, echoes_text: bool = True) -> Behaviour:
    """Answer as Fireworks' completions endpoint, with ``echo_last`` and legacy arrays with token ids."""

    async def run(received: Received, wire: Wire) -> None:
        payload = received.json
        prompt = payload["prompt"]
        assert payload["logprobs"] <= 5
        scored = await scorer.score(prompt, payload["max_tokens"], payload["logprobs"], payload.get("stop"))
        last = scored["echo"] if payload.get("echo") else payload.get("echo_last", 0)
        first = scored["echo"] - last
        rows, tops = scored["rows"][first:], scored["tops"][first:]
        whole = scored["text"]
        before = (await scorer.score(scored["ids"][:first], 0, 1))["text"] if first else ""
        if not echoes_text or not last:
            before = (await scorer.score(prompt, 0, 1))["text"]
        logprobs = {
            "token_ids": [number for number, _, _ in rows],
            "tokens": [text for _, text, _ in rows],
            "token_logprobs": [value for _, _, value in rows],
            "top_logprobs": tops,
        }
        choice = {
            "index": 0,
            "text": whole[len(before) :],
            "logprobs": logprobs,
            "finish_reason": scored["finish"],
            "token_ids": scored["new"],
        }
        await _completion(payload, choice, scored)(received, wire)

    return run


def together(scorer: Scorer) -> Behaviour:
    """Answer as Together's completions endpoint.

    Prompts are text, and the prompt's log-probabilities are next to the choices, without alternatives.
    """

    async def run(received: Received, wire: Wire) -> None:
        payload = received.json
        assert isinstance(payload["prompt"], str)
        scored = await scorer.score(payload["prompt"], payload["max_tokens"], 1, payload.get("stop"))

        def logprobs(rows: list[Any]) -> dict[str, Any]:
            ids, texts, values = zip(*rows, strict=True) if rows else ((), (), ())
            return {"token_ids": ids, "tokens": texts, "token_logprobs": values}

        choice = {
            "index": 0,
            "text": _new_text(scored, payload["prompt"]),
            "logprobs": logprobs(scored["rows"][scored["echo"] :]),
            "finish_reason": scored["finish"],
        }
        echoed = {"text": payload["prompt"], "logprobs": logprobs(scored["rows"][: scored["echo"]])}
        await _completion(payload, choice, scored, prompt=[echoed] if payload.get("echo") else [])(
            received, wire
        )

    return run


def tgi(scorer: Scorer) -> Behaviour:
    """Answer as TGI: ``/generate`` with ``decoder_input_details``, and completions without these details."""

    async def run(received: Received, wire: Wire) -> None:
        payload = received.json
        if received.path == "/v1/completions":
            return await together(scorer)(received, wire)
        assert received.path == "/generate"
        parameters = payload["parameters"]
        scored = await scorer.score(
            payload["inputs"], parameters["max_new_tokens"], 1, parameters.get("stop")
        )
        rows = [{"id": number, "text": text, "logprob": value} for number, text, value in scored["rows"]]
        details = {
            "finish_reason": "length" if scored["finish"] == "length" else "eos_token",
            "generated_tokens": len(scored["new"]),
            "prefill": rows[: scored["echo"]],
            "tokens": [{**row, "special": False} for row in rows[scored["echo"] :]],
        }
        body = {"generated_text": _new_text(scored, payload["inputs"]), "details": details}
        return await reply(200, body)(received, wire)

    return run


def _completion(payload: Any, choice: Mapping[str, Any], scored: Mapping[str, Any], **more: Any) -> Behaviour:
    return reply(
        200,
        {
            "id": "cmpl-1",
            "object": "text_completion",
            "created": 1,
            "model": payload["model"],
            "choices": [choice],
            "usage": scored["usage"],
            **more,
        },
    )
