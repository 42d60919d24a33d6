"""Loading by the backend: settings are checked on creation, and each model has its own lock."""

from __future__ import annotations

import contextlib
import shutil
import threading

import anyio
import pytest
from specclient_local.api.backend import create
from specclient_local.engine import engine as engine_module

from specclient.errors import ConfigurationError, EngineError
from specclient.types import inference_methods
from specclient.types.request import Request

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def folder(checkpoint):
    return str(checkpoint(eos_token_id=None))


def completion(model):
    return Request(inference_methods.COMPLETION, f"local/{model}", {"prompt": "def f", "temperature": 0})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"models": {"m": {"path": "p", "methd": "plain"}}},
            "has 'methd'; did you mean 'method'\\? Allowed",
        ),
        ({"models": {"m": {"draft": "p"}}}, "must be a table with path"),
        ({"models": {"m": "p"}}, "must be a table with path"),
        ({"models": {"m": {"path": None}}}, "path is None"),
        ({"models": {"m": {"path": "p", "draft": 3}}}, "'m': draft is 3"),
        ({"models": {"m": {"path": "p", "device": "tpu"}}}, "'m': device is 'tpu'; allowed are auto, cpu"),
        ({"models": {"m": {"path": "p", "slots": 0}}}, "'m': slots is 0"),
        ({"models": {"m": {"path": "p", "method": "magic"}}}, "method is 'magic'; allowed are auto, plain"),
        ({"models": {"m": {"path": "p", "method": "draft"}}}, "'draft', but draft is None"),
        ({"models": {"m": {"path": "p", "dtype": "fp32"}}}, "dtype is 'fp32'; allowed are float32"),
        ({"models": {"m": {"path": "p", "method": "union"}}}, "'m': method is 'union', but draft is None"),
        ({"models": {"m": {"path": "p", "method": "layer_skip"}}}, "'layer_skip', but layer_skip is None"),
        ({"models": {"m": {"path": "p", "draft_length": 99}}}, "'m': draft_length is 99"),
        ({"models": {"m": {"path": "p", "draft_tree": [0]}}}, "'m': draft_tree is "),
        ({"models": {"m": {"path": "p", "verification": "both"}}}, "'m': verification is 'both'"),
        ({"slots": 0}, "slots is 0"),
        ({"slots": True}, "slots is True"),
        ({"threads": -1}, "threads is -1"),
    ],
)
def test_settings_are_checked_when_the_backend_is_created(settings, message):
    with pytest.raises(ConfigurationError, match=message):
        create(settings)


def test_models_lists_each_models_load_options(folder):
    backend = create(
        {
            "slots": 2,
            "models": {
                "several": {"path": folder, "draft": [folder, "owner/small"], "quantize": "int8"},
                "layers": {"path": folder, "layer_skip": 1, "context": 64, "slots": 1},
                "text": {"path": folder, "method": "ngram", "runner": "hf"},
            },
        }
    )
    rows = {row.id: row for row in backend.models()}
    several = rows["several"]
    assert (several.method, several.draft) == ("union", f"{folder} + owner/small")
    assert several.options == {"quantize": "int8", "slots": 2}
    assert (rows["layers"].method, rows["layers"].draft, rows["layers"].context) == ("layer_skip", None, 64)
    assert rows["layers"].options == {"layer_skip": 1, "context": 64, "slots": 1}
    assert (rows["text"].method, rows["text"].options) == ("ngram", {"runner": "hf", "slots": 2})


async def test_all_options_of_a_model_are_used_when_it_is_loaded(folder):
    options = {"layer_skip": 1, "context": 64, "slots": 1, "runner": "own", "prefix_cache": False}
    backend = create({"models": {"m": {"path": folder, **options}}, "threads": 1})
    answer, measured = await backend.complete(completion("m"), "m")
    assert answer.usage.completion_tokens == 16
    assert measured.speculation.method == "layer_skip"
    (engine,) = backend._engines.values()
    assert (engine.context, engine.threads, "layer_skip" in engine.methods) == (64, 1, True)
    await backend.aclose()


async def test_loading_a_model_blocks_neither_other_models_nor_the_event_loop(folder, tmp_path, monkeypatch):
    """While a model is loading, a loaded one answers; closing waits for the load to end."""
    shutil.copytree(folder, tmp_path / "slow")
    backend = create(
        {"models": {"quick": {"path": folder}, "slow": {"path": str(tmp_path / "slow")}}, "threads": 1}
    )
    await backend.complete(completion("quick"), "quick")
    begun, release, made = threading.Event(), threading.Event(), []
    original = engine_module.Engine.load

    def loading(*args, **kwargs):
        begun.set()
        assert release.wait(20)
        made.append(original(*args, **kwargs))
        return made[-1]

    monkeypatch.setattr(engine_module.Engine, "load", loading)

    async def slow():
        with contextlib.suppress(EngineError):  # the engine may close before or after the request is queued
            await backend.complete(completion("slow"), "slow")

    async with anyio.create_task_group() as group:
        group.start_soon(slow)
        await anyio.to_thread.run_sync(begun.wait)
        try:
            with anyio.fail_after(10):
                await backend.complete(completion("quick"), "quick")
            group.start_soon(backend.aclose)
            await anyio.sleep(0.05)
        finally:
            release.set()
    with pytest.raises(EngineError, match="closed"):
        made[0].generate("x", max_tokens=1)
    monkeypatch.undo()
    answer, _ = await backend.complete(completion("quick"), "quick")
    assert answer.choices
    await backend.aclose()
    assert not backend._engines
