"""Managed engines: servers that specclient starts for a model, disturbed, and their answers compared."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from specclient_local.managed.listing import ListedServer, list_servers, stop_servers
from specclient_local.managed.process_tree import descendants, is_running

from engines.catalogue import ENGINES
from engines.checked_engine import BUILD, CONTEXT, DRAFT, ROOT, TARGET, CheckedEngine
from specclient import AsyncOpenAI, Settings

RESULTS: Final = ROOT / "tools" / "engines" / "managed.json"
NAME: Final = "checked"
_PARAMS: Final[Mapping[str, Any]] = {"prompt": "def fibonacci(n):\n", "max_tokens": 24, "temperature": 0}
_CALLS: Final = 20
_END_S: Final = 10.0
_TEXT: Final = (
    "`python tools/check_managed.py` lets specclient start these servers for a model ([managed\n"
    "engines](managed-engines.md)), with the bundled pair. Whole and streamed answers equal those of\n"
    "specclient's own engine. The server is killed, and the next call starts it again; then its supervisor\n"
    "is killed, and no process is left. A call has 24 tokens; the machine had other work, so the times are\n"
    "no benchmark."
)
_HEADING: Final = (
    "| Server | Version | Date | First call | Call, managed / as a provider | First call after SIGKILL "
    "| Processes | All gone after |"
)


@dataclass(frozen=True)
class ManagedCheck:
    """A server that is started as a managed engine.

    Attributes:
        engine: how its environment is made.
        table: returns the table of the model, without ``env``.
    """

    engine: CheckedEngine
    table: Callable[[CheckedEngine], dict[str, Any]]


def _vllm(engine: CheckedEngine) -> dict[str, Any]:
    python = BUILD / engine.environment / "bin" / "python"
    return {
        "path": str(TARGET), "draft": str(DRAFT), "engine": "vllm", "python": str(python), "context": CONTEXT,
        "dtype": "float32", "arguments": ["--enforce-eager"],
    }  # fmt: skip


def _llamacpp(engine: CheckedEngine) -> dict[str, Any]:
    """Return the table of llama.cpp's server, by a command: its wheel has no program ``llama-server``."""
    folder = BUILD / engine.environment
    script, files = ROOT / "tools" / "engines" / "llamacpp_server.py", ("target.gguf", "draft.gguf")
    words = [folder / "bin" / "python", script, "{port}", CONTEXT, *(folder / name for name in files)]
    return {"path": str(TARGET), "engine": "llama.cpp", "command": [*map(str, words)]}


CHECKED: Final = tuple(
    ManagedCheck(engine, table)
    for name, table in (("vllm", _vllm), ("llama.cpp", _llamacpp))
    for engine in ENGINES
    if engine.name == name
)


async def check(checked: ManagedCheck) -> dict[str, Any]:
    """Return what was found of one server, by name.

    Raises:
        AssertionError: an answer differs, or a process is left.
    """
    table = {**checked.table(checked.engine), "env": {"HF_HUB_OFFLINE": "1", **checked.engine.variables}}
    models = {"local": {"threads": 1, "models": {NAME: table}}}
    async with AsyncOpenAI(config=Settings.model_validate(models), ledger="off") as client:
        own = await client.completions.create(model=f"local/{TARGET}", **_PARAMS)
        begun = time.monotonic()
        first = await _complete(client, own)
        found: dict[str, Any] = {"start_s": round(time.monotonic() - begun)}
        assert first.meta.speculation is not None, "the answer reports no speculation"
        found["drafted"] = first.meta.speculation.drafted
        stream = await client.completions.create(model=f"local/{NAME}", stream=True, **_PARAMS)
        text = "".join([chunk.choices[0].text async for chunk in stream if chunk.choices])
        assert text == own.choices[0].text, f"the stream differs: {text!r}"
        found |= await _overhead(client, models)
        os.kill(_listed().state.pid, signal.SIGKILL)  # of whose end the client learns by its failure
        begun = time.monotonic()
        await _complete(client, own)
        found["restart_s"] = round(time.monotonic() - begun)
    listed = _listed()
    processes = [listed.state.supervisor, *descendants(listed.state.supervisor)]
    begun = time.monotonic()
    os.kill(listed.state.supervisor, signal.SIGKILL)
    while left := [pid for pid in processes if is_running(pid)]:
        assert time.monotonic() - begun < _END_S, f"processes are left: {left}"
        await asyncio.sleep(0.05)
    return found | {"processes": len(processes), "orphans_s": round(time.monotonic() - begun, 1)}


async def _complete(client: AsyncOpenAI, own: Any) -> Any:
    answer = await client.completions.create(model=f"local/{NAME}", **_PARAMS)
    assert answer.choices[0].text == own.choices[0].text, f"the answer differs: {answer.choices[0].text!r}"
    return answer


def _listed() -> ListedServer:
    return next(each for each in list_servers(NAME) if each.alive)


async def _overhead(client: AsyncOpenAI, models: dict[str, Any]) -> dict[str, float]:
    """Return the median milliseconds of a call as a managed engine, and of the same server as a provider."""
    state = _listed().state
    direct = {"base_url": state.base_url, "api_key": state.key}
    settings = Settings.model_validate({**models, "providers": {"direct": direct}})
    times: dict[str, list[float]] = {"managed_ms": [], "direct_ms": []}
    async with AsyncOpenAI(config=settings, ledger="off", max_retries=0) as other:
        for _ in range(_CALLS):
            for name, used, model in (
                ("managed_ms", client, f"local/{NAME}"),
                ("direct_ms", other, f"direct/{state.model}"),
            ):
                begun = time.perf_counter()
                await used.completions.create(model=model, **_PARAMS)
                times[name].append((time.perf_counter() - begun) * 1e3)
    return {name: round(statistics.median(each), 1) for name, each in times.items()}


def stop() -> None:
    """Stop the server."""
    stop_servers(list_servers(NAME))


def managed_section(results: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the section of the page; empty without results."""
    if not results:
        return []
    lines = [
        "",
        "## As managed engines",
        "",
        _TEXT,
        "",
        _HEADING,
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, found in results.items():
        times = f"{found['managed_ms']} / {found['direct_ms']} ms"
        server, _, version = name.rpartition(" ")
        starts = f"{found['start_s']} s | {times} | {found['restart_s']} s"
        ends = f"{found['processes']} | {found['orphans_s']} s"
        lines.append(f"| {server} | {version} | {found['date']} | {starts} | {ends} |")
    return lines


def read_results() -> dict[str, dict[str, Any]]:
    """Return the saved results, by server."""
    found: dict[str, dict[str, Any]] = json.loads(RESULTS.read_text("utf-8")) if RESULTS.exists() else {}
    return found
