"""The checks: what a server answers through specclient, beside what the own engine answers."""

from __future__ import annotations

import asyncio
import re
import time
import urllib.request
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from engines.checked_engine import CONTEXT, DRAFT, TARGET, CheckedEngine
from specclient import (
    APIStatusError,
    AsyncOpenAI,
    BadRequestError,
    NotFoundError,
    Settings,
    Strategy,
)
from specclient.call.failover.causes import is_context_overflow

_TOKENS: Final = 24
_SLOW_S: Final = 30.0
#: Texts that the bundled tokenizer and Llama 3's split alike: only the last line is indented.
PROMPTS: Final = ("def fibonacci(n):\n", "import os\nimport sys\n\n\ndef main():\n        ")
CHATS: Final[tuple[list[Any], ...]] = (
    [{"role": "user", "content": "def fibonacci(n):\n"}],
    [
        {"role": "system", "content": "A stack."},
        {"role": "user", "content": "class Stack:\n"},
    ],
)
_COUNTER: Final = re.compile(
    r"^\w+:spec_decode_num_(draft_tokens|accepted_tokens)_total(?:\{[^}]*\})? (\S+)$", re.M
)
_RUNNING: Final = re.compile(r"^\w+:(?:num_requests_running|requests_processing)(?:\{[^}]*\})? (\S+)$", re.M)


@dataclass(frozen=True)
class Bench:
    """The objects that a check uses.

    Attributes:
        engine: the server.
        models_url: base URL of the server with the models and the counters.
        client: a client that knows it as its preset, with the bundled template.
    """

    engine: CheckedEngine
    models_url: str
    client: AsyncOpenAI

    @property
    def model(self) -> str:
        """The model's name for the client."""
        return f"{self.engine.provider}/{self.engine.model}"

    async def complete(self, prompt: str = PROMPTS[0], *, own: bool = False, **params: Any) -> Any:
        """Return a greedy completion, of the server or of the own engine."""
        return await self.client.completions.create(prompt=prompt, **self._params(own, params))

    async def chat(self, messages: Any = CHATS[0], *, own: bool = False, **params: Any) -> Any:
        """Return a greedy chat completion, of the server or of the own engine."""
        return await self.client.chat.completions.create(messages=messages, **self._params(own, params))

    def _params(self, own: bool, params: dict[str, Any]) -> dict[str, Any]:
        body = {} if own else {**self.engine.body, **params.pop("extra_body", {})}
        model = f"local/{TARGET}" if own else self.model
        return {"model": model, "temperature": 0, "max_tokens": _TOKENS, "extra_body": body, **params}

    async def metrics(self) -> str:
        """Return the Prometheus page of the server with the models."""
        url = self.models_url.removesuffix("/v1") + "/metrics"
        return await asyncio.to_thread(lambda: urllib.request.urlopen(url, timeout=30).read().decode())


def bench_settings(engine: CheckedEngine, base_url: str) -> Settings:
    """Return settings that know a server by its preset and its checkpoint's template."""
    provider: dict[str, Any] = {"base_url": base_url, "template": str(TARGET)}
    if engine.capabilities:
        provider["capabilities"] = engine.capabilities
    return Settings.model_validate({"providers": {engine.provider: provider}, "local": {"threads": 1}})


async def completions(bench: Bench) -> None:
    """Greedy completions equal those of specclient's engine."""
    for prompt in PROMPTS:
        theirs, own = await bench.complete(prompt), await bench.complete(prompt, own=True)
        _equal(theirs.choices[0].text, own.choices[0].text)
        _equal(theirs.choices[0].finish_reason, "length")


async def chat(bench: Bench) -> None:
    """Greedy chats equal those of specclient's engine."""
    for messages in CHATS:
        theirs, own = await bench.chat(messages), await bench.chat(messages, own=True)
        _equal(theirs.choices[0].message.content, own.choices[0].message.content)
        _equal(theirs.choices[0].message.role, "assistant")


async def streams(bench: Bench) -> None:
    """Streamed answers have the text of whole ones."""
    whole = await bench.chat()
    chunks = [chunk async for chunk in await bench.chat(stream=True)]
    texts = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
    _equal("".join(texts), whole.choices[0].message.content)
    reasons = [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices]
    _equal([reason for reason in reasons if reason], ["length"])
    text = (await bench.complete()).choices[0].text
    parts = [chunk async for chunk in await bench.complete(stream=True)]
    _equal("".join(part.choices[0].text or "" for part in parts if part.choices), text)


async def usage(bench: Bench) -> None:
    """Whole and streamed answers report the token counts of specclient's engine."""
    own = await bench.chat(own=True)
    whole = await bench.chat()
    stream = await bench.chat(stream=True)
    async for _ in stream:
        pass
    for found in (whole.meta.usage, stream.meta.usage):
        _equal((found.prompt, found.completion), (own.usage.prompt_tokens, own.usage.completion_tokens))


async def stop(bench: Bench) -> None:
    """A stop string ends the answer where it ends that of specclient's engine."""
    for text in ("\n", "return"):
        theirs = await bench.chat(stop=text, max_tokens=60)
        own = await bench.chat(stop=text, max_tokens=60, own=True)
        _equal(theirs.choices[0].message.content, own.choices[0].message.content)
        _equal(theirs.choices[0].finish_reason, own.choices[0].finish_reason)


async def logprobs(bench: Bench) -> None:
    """The log-probabilities of a greedy answer equal those of specclient's engine within 0.01."""
    ask: dict[str, Any] = {"logprobs": True, "top_logprobs": 2, "max_tokens": 8}
    theirs = (await bench.chat(**ask)).choices[0].logprobs
    own = (await bench.chat(**ask, own=True)).choices[0].logprobs
    if theirs is None or not theirs.content:
        raise AssertionError("the answer has none")
    for mine, yours in zip(own.content, theirs.content, strict=True):
        _equal(yours.token, mine.token)
        if abs(yours.logprob - mine.logprob) > 0.01:
            raise AssertionError(f"{yours.token!r} has {yours.logprob}; the own engine's has {mine.logprob}")


async def telemetry(bench: Bench) -> None:
    """The speculation of calls equals what the server's counters report for them."""
    before = _counters(await bench.metrics())
    drafted = accepted = 0
    for messages in CHATS:
        whole = (await bench.chat(messages)).meta.speculation
        stream = await bench.chat(messages, stream=True)
        async for _ in stream:
            pass
        for found in (whole, stream.meta.speculation):
            if found is None or found.drafted is None:
                raise AssertionError("a call has no speculation")
            drafted, accepted = drafted + found.drafted, accepted + (found.accepted or 0)
    after = _counters(await bench.metrics())
    counted = {name: after[name] - before[name] for name in after}
    _equal({"draft_tokens": drafted, "accepted_tokens": accepted}, counted)


async def remote(bench: Bench) -> None:
    """Strategy ``remote`` yields the server's own completions and chats, token for token."""
    ids = {"return_token_ids": True} if bench.engine.token_ids else {}
    for depth in (3, None):
        strategy = Strategy(kind="remote", draft=f"local/{DRAFT}", depth=depth)
        for messages in CHATS:
            own = await bench.chat(messages, extra_body=ids)
            answer = await bench.chat(messages, extra_body=ids, strategy=strategy)
            _equal(answer.choices[0].message.content, own.choices[0].message.content)
            _equal(_token_ids(answer), _token_ids(own))
            if ids:
                _equal(answer.prompt_token_ids, own.prompt_token_ids)
        own = await bench.complete(extra_body=ids)
        answer = await bench.complete(extra_body=ids, strategy=strategy)
        _equal(answer.choices[0].text, own.choices[0].text)
        _equal(_token_ids(answer), _token_ids(own))


def _token_ids(answer: Any) -> Any:
    return getattr(answer.choices[0], "token_ids", None)


async def probe(bench: Bench) -> None:
    """A probe confirms the preset, and finds the way in which prompts are scored."""
    from specclient.telemetry.probe import ProbeReply  # noqa: PLC0415 - only here
    from specclient.telemetry.probe import probe as run_probe  # noqa: PLC0415

    known = bench.client.pipeline.destinations.get(bench.engine.provider).capabilities  # type: ignore[union-attr]

    async def send(kind: str, _: str, params: Mapping[str, Any]) -> ProbeReply:
        create = bench.client.chat.completions.create if kind == "chat" else bench.client.completions.create
        own = {name: params[name] for name in ("messages", "prompt", "max_tokens") if name in params}
        tested = {name: value for name, value in params.items() if name not in own}
        try:
            return ProbeReply(await create(model=bench.model, **own, extra_body=tested))  # type: ignore[call-overload]
        except APIStatusError as error:
            return ProbeReply(None, str(error))

    found = (await run_probe(send, known)).capabilities()
    _equal(found.get("prediction", known.prediction), known.prediction)
    default = None if known.verification else known.verification
    _equal(found.get("verification", default), known.verification)
    if bench.engine.speculates:
        _equal(found.get("telemetry"), known.telemetry)


async def cancellation(bench: Bench) -> None:
    """A stream that the client closes is cancelled at the server at once."""
    stream = await bench.chat(stream=True, max_tokens=CONTEXT - 64)
    count = 0
    async for _ in stream:
        count += 1
        if count == 3:
            break
    await stream.close()
    if not bench.engine.metrics:
        begun = time.monotonic()
        await bench.chat(max_tokens=2)
        if time.monotonic() - begun > _SLOW_S:
            raise AssertionError("the next call waited for the closed one")
        return
    end_s = time.monotonic() + _SLOW_S
    while any(float(value) for value in _RUNNING.findall(await bench.metrics())):
        if time.monotonic() > end_s:
            raise AssertionError(f"the request still runs after {_SLOW_S:.0f} s")
        await asyncio.sleep(0.2)


async def errors(bench: Bench) -> None:
    """Errors have the classes of the openai package, and failover recognises a prompt that is too long."""
    long = [{"role": "user", "content": "x = [0]\n" * 400}]
    await _raises(BadRequestError, bench.chat(extra_body={"temperature": "hot"}))
    refused = await _raises(BadRequestError, bench.chat(long))
    if not is_context_overflow(refused):
        raise AssertionError(f"failover does not know that the prompt is too long: {refused}")


async def unknown_model(bench: Bench) -> None:
    """A model that the server does not have is a ``NotFoundError``."""
    create = bench.client.chat.completions.create
    unknown = create(model=f"{bench.engine.provider}/no-such-model", messages=CHATS[0], max_tokens=2)
    await _raises(NotFoundError, unknown)


async def _raises(kind: type[Exception], call: Awaitable[Any]) -> Exception:
    try:
        await call
    except kind as error:
        return error
    except APIStatusError as error:
        raise AssertionError(f"{type(error).__name__} where {kind.__name__} was expected: {error}") from None
    raise AssertionError(f"an answer where {kind.__name__} was expected")


CHECKS: Final[tuple[Callable[[Bench], Awaitable[None]], ...]] = (
    completions, chat, streams, usage, stop, logprobs, telemetry, remote, probe, cancellation, errors,
    unknown_model,
)  # fmt: skip


def _counters(page: str) -> dict[str, float]:
    found: dict[str, float] = {"draft_tokens": 0, "accepted_tokens": 0}
    for name, value in _COUNTER.findall(page):
        found[name] += float(value)
    return found


def _equal(found: object, expected: object) -> None:
    if found != expected:
        raise AssertionError(f"{found!r} where {expected!r} was expected")
