"""Experiments with replicas under load: one is killed, all are updated, their number follows the load."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from engines.checked_engine import DRAFT, ROOT
from engines.running import RunningFleet
from specclient import AsyncOpenAI, OpenAIError, Policy, Settings

_STREAMS: Final = 16
_TOKENS: Final = 160
_PATIENCE_S: Final = 900.0
_MODEL: Final = "LLMServer:target"
_HEADS: Final = ROOT / "local" / "specclient_local" / "bundled" / "eagle3"
DRAFT_MODEL: Final = {"method": "draft_model", "model": str(DRAFT), "num_speculative_tokens": 4}
_EAGLE: Final = {"method": "eagle3", "model": str(_HEADS), "num_speculative_tokens": 3}
_PROMPTS: Final = tuple(f"def function_{index}(values):\n" for index in range(_STREAMS))


def fleet_settings(base_url: str) -> Settings:
    """Return settings with two names of one endpoint, so that a stream that breaks off has a second route."""
    again = {"base_url": base_url, "capabilities": {"prefill": "continue_final_message"}}
    return Settings.model_validate({
        "providers": {"vllm": {"base_url": base_url}, "again": again},
        "candidates": ["vllm/target", "again/target"],
    })  # fmt: skip


@dataclass(slots=True)
class Timeline:
    """The events of an experiment and their times.

    Attributes:
        events: seconds since the start and the event.
        finished: seconds since the start at which requests were answered.
        errors: failed requests by the class of their error.
        drafts: answered requests by the server's draft length, as far as it tells.
    """

    begun_s: float = field(default_factory=time.monotonic)
    events: list[tuple[float, str]] = field(default_factory=list)
    finished: list[float] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)
    replicas: list[tuple[float, int]] = field(default_factory=list)

    @property
    def now_s(self) -> float:
        """Seconds since the start."""
        return round(time.monotonic() - self.begun_s, 2)

    def note(self, event: str) -> None:
        """Note an event."""
        self.events.append((self.now_s, event))

    def entry(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {
            "answered": len(self.finished), "errors": dict(self.errors), "events": self.events,
            "finished": self.finished, "replicas": self.replicas,
        }  # fmt: skip


async def killed_replica(fleet: RunningFleet, client: AsyncOpenAI) -> dict[str, Any]:
    """A replica is killed while 16 streams run: first with a second route for each stream, then without."""
    undisturbed = await asyncio.gather(*(_whole(client, prompt) for prompt in _PROMPTS))
    found: dict[str, Any] = {}
    routes = {
        "with failover": ("auto", Policy(minimize="latency", explore=0)),
        "without": ("vllm/target", None),
    }
    for name, (model, policy) in routes.items():
        await _settled(fleet, 2)
        begun = asyncio.Event()
        streams = [_Streamed(prompt) for prompt in _PROMPTS]
        running = [asyncio.create_task(each.run(client, model, policy, begun)) for each in streams]
        await begun.wait()
        kept = [each.text for each in streams]
        await asyncio.to_thread(fleet.ask, {"kill": True})
        killed_s = time.monotonic()
        await asyncio.gather(*running)
        outcomes = [each.outcome(*pair) for each, *pair in zip(streams, kept, undisturbed, strict=True)]
        found[name] = dict(Counter(outcomes))
        begun_s = min(each.times[0] for each in streams if each.times)
        found.setdefault("streams", {})[name] = {
            "killed": round(killed_s - begun_s, 2),
            "outcomes": outcomes,
            "times": [[round(at - begun_s, 2) for at in each.times] for each in streams],
        }
        print(f"  a replica killed, {name}: {found[name]}", flush=True)
    return found


@dataclass(slots=True)
class _Streamed:
    """A streamed completion.

    Attributes:
        text: its text so far.
        attempts: the number of attempts that it took.
        error: the class of the error that ended it.
        times: monotonic seconds at which its chunks arrived.
    """

    prompt: str
    text: str = ""
    attempts: int = 1
    error: str | None = None
    times: list[float] = field(default_factory=list)

    async def run(self, client: AsyncOpenAI, model: str, policy: Policy | None, begun: asyncio.Event) -> None:
        """Read the stream; set the event when it has an eighth of its tokens, or has ended."""
        more = {} if policy is None else {"policy": policy}
        count = 0
        try:
            stream = await client.completions.create(
                model=model, prompt=self.prompt, max_tokens=_TOKENS, temperature=0, stream=True, **more
            )  # type: ignore[call-overload]
            async for chunk in stream:
                count += 1
                self.times.append(time.monotonic())
                if chunk.choices:
                    self.text += chunk.choices[0].text
                if count == _TOKENS // 8:
                    begun.set()
            self.attempts = max(len(stream.meta.parts), 1)
        except OpenAIError as error:
            self.error = type(error).__name__
        finally:
            begun.set()

    def outcome(self, kept: str, undisturbed: str) -> str:
        """Return what became of the stream.

        Args:
            kept: its text when the replica was killed.
            undisturbed: the text of an answer without a failure.
        """
        is_whole = self.text.startswith(kept) and undisturbed.startswith(kept)
        if self.error is not None:
            beginning = "a correct" if undisturbed.startswith(self.text) else "a wrong"
            return f"{self.error}, after {beginning} beginning"
        if self.text == undisturbed:
            return "the undisturbed text" + (", resumed" if self.attempts > 1 else "")
        if self.attempts > 1 and is_whole:
            return "resumed where it broke off, with other words after that"
        return "a wrong text"


async def _whole(client: AsyncOpenAI, prompt: str) -> str:
    answer = await client.completions.create(
        model="vllm/target", prompt=prompt, max_tokens=_TOKENS, temperature=0
    )
    return answer.choices[0].text


async def update(fleet: RunningFleet, client: AsyncOpenAI) -> dict[str, Any]:
    """The draft model is replaced by EAGLE-3 heads while calls and streams go on."""
    await _settled(fleet, 2)
    async with _load(client, workers=4) as timeline:
        await asyncio.sleep(10)
        timeline.note("update begun")
        await asyncio.to_thread(fleet.ask, {"deploy": {"replicas": 2, "speculation": _EAGLE}})
        timeline.note("update done")
        await asyncio.sleep(10)
    speculation = (await _answer(client)).meta.speculation
    timeline.note(f"draft length {None if speculation is None else _length(speculation)}")
    print(f"  an update: {len(timeline.finished)} answered, {dict(timeline.errors)} failed", flush=True)
    return timeline.entry()


async def autoscaling(fleet: RunningFleet, client: AsyncOpenAI) -> dict[str, Any]:
    """One to three replicas: a load of 12 calls at once comes and goes."""
    await asyncio.to_thread(fleet.ask, {"deploy": {"replicas": [1, 3], "speculation": DRAFT_MODEL}})
    await _settled(fleet, 1)
    async with _load(client, workers=12) as timeline:
        timeline.note("load begun")
        await _until(fleet, lambda running: running >= 3, timeline)
        timeline.note("three replicas")
        await asyncio.sleep(10)
    timeline.note("load ended")
    await _until(fleet, lambda running: running == 1, timeline)
    timeline.note("one replica")
    await _answer(client)
    print(f"  autoscaling: {timeline.events}, {dict(timeline.errors)} failed", flush=True)
    return timeline.entry()


@asynccontextmanager
async def _load(client: AsyncOpenAI, *, workers: int) -> AsyncIterator[Timeline]:
    """Keep calls going during the block, every other one a stream."""
    timeline, stopped = Timeline(), asyncio.Event()

    async def work(number: int) -> None:
        turn = number
        while not stopped.is_set():
            turn += 1
            try:
                await _answer(client, stream=turn % 2 == 0)
            except OpenAIError as error:
                timeline.errors[f"{type(error).__name__}: {str(error)[:120]}"] += 1
            else:
                timeline.finished.append(timeline.now_s)

    tasks = [asyncio.create_task(work(number)) for number in range(workers)]
    try:
        yield timeline
    finally:
        stopped.set()
        await asyncio.gather(*tasks)


async def _answer(client: AsyncOpenAI, *, stream: bool = False) -> Any:
    answer = await client.completions.create(
        model="vllm/target", prompt=_PROMPTS[0], max_tokens=64, temperature=0, stream=stream
    )  # type: ignore[call-overload]
    if stream:
        reasons = [chunk.choices[0].finish_reason async for chunk in answer if chunk.choices]
        if reasons[-1] is None:
            raise AssertionError("a stream ended without a reason")
    return answer


def _length(speculation: Any) -> float | None:
    return speculation.drafted / speculation.steps if speculation.steps else None


async def _settled(fleet: RunningFleet, replicas: int) -> None:
    """Wait until so many replicas run and none starts or ends."""
    await _wait(fleet, lambda state: state.get(_MODEL) == {"RUNNING": replicas})


async def _until(fleet: RunningFleet, reached: Callable[[int], bool], timeline: Timeline) -> None:
    """Wait until the number of running replicas is reached; note it on the way."""

    def is_reached(state: dict[str, dict[str, int]]) -> bool:
        running = state.get(_MODEL, {}).get("RUNNING", 0)
        timeline.replicas.append((timeline.now_s, running))
        return reached(running)

    await _wait(fleet, is_reached)


async def _wait(fleet: RunningFleet, reached: Callable[[dict[str, dict[str, int]]], bool]) -> None:
    end_s = time.monotonic() + _PATIENCE_S
    while not reached(state := await asyncio.to_thread(fleet.ask, {"state": True})):
        if time.monotonic() > end_s:
            raise AssertionError(f"after {_PATIENCE_S:.0f} s the replicas are {json.dumps(state)}")
        await asyncio.sleep(1)


EXPERIMENTS: Final[tuple[Callable[[RunningFleet, AsyncOpenAI], Awaitable[dict[str, Any]]], ...]] = (
    killed_replica, update, autoscaling,
)  # fmt: skip
