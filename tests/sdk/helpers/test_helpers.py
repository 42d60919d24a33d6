"""The microphone and the player of sound: the same files and the same sound as from the OpenAI package."""

from __future__ import annotations

import asyncio
import importlib
import io
import itertools
import sys
from collections.abc import AsyncGenerator, Iterator
from typing import Any

import pytest

numpy = pytest.importorskip("numpy")

import httpx  # noqa: E402
from sound_card import SoundCard  # noqa: E402

import specclient  # noqa: E402

LIBRARIES = ("openai", "specclient")


def _helpers(lib: str, card: SoundCard, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setitem(sys.modules, "sounddevice", card.module)
    return importlib.import_module(f"{lib}.helpers")


def _pieces(dtype: Any) -> Iterator[Any]:
    return (numpy.array([[n, -n]] * 4).astype(dtype) for n in itertools.count(1))


@pytest.mark.parametrize("dtype", ["int16", "float32", "int8", "int32"])
@pytest.mark.parametrize("as_array", [False, True, None])
def test_a_recording_is_the_same(monkeypatch: pytest.MonkeyPatch, dtype: str, as_array: Any) -> None:
    found = []
    for lib in LIBRARIES:
        answers = iter([True, True, True, False])
        helpers = _helpers(lib, SoundCard(_pieces(dtype)), monkeypatch)
        microphone = helpers.Microphone(2, getattr(numpy, dtype), lambda answers=answers: next(answers))
        sound = asyncio.run(microphone.record(return_ndarray=as_array))
        found.append(sound.tolist() if as_array else (sound[0], sound[1].getvalue(), sound[2]))
    assert found[0] == found[1]


@pytest.mark.parametrize("lib", LIBRARIES)
def test_a_recording_ends_at_its_timeout(monkeypatch: pytest.MonkeyPatch, lib: str) -> None:
    helpers = _helpers(lib, SoundCard(_pieces("int16")), monkeypatch)
    name, content, kind = asyncio.run(helpers.Microphone(channels=2, timeout=0.0).record())
    assert (name, kind, content.read(4)) == ("audio.wav", "audio/wav", b"RIFF")


def _answer(lib: str, content: bytes) -> Any:
    response = httpx.Response(200, content=content)
    return importlib.import_module(f"{lib}._legacy_response").HttpxBinaryResponseContent(response)


SOUNDS: dict[str, Any] = {
    "integers": lambda _: numpy.array([0, 1000, -1000, 32767, 5], dtype=numpy.int16),
    "floats": lambda _: numpy.array([[0.5], [-0.5], [1.0]], dtype=numpy.float32),
    "nothing": lambda _: numpy.zeros((0, 1), dtype=numpy.float32),
    "an answer": lambda lib: _answer(lib, numpy.arange(9, dtype=numpy.int16).tobytes()),
}


@pytest.mark.parametrize("name", SOUNDS)
def test_a_sound_is_played_alike(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    found = []
    for lib in LIBRARIES:
        card = SoundCard()
        player = _helpers(lib, card, monkeypatch).LocalAudioPlayer()
        asyncio.run(player.play(SOUNDS[name](lib)))
        found.append([piece.tolist() for piece in card.played])
    assert found[0] == found[1]


def test_a_player_stops_when_asked_to(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for lib in LIBRARIES:
        card, answers = SoundCard(), iter([False, True])
        player = _helpers(lib, card, monkeypatch).LocalAudioPlayer(lambda answers=answers: next(answers))
        asyncio.run(player.play(numpy.ones((100, 1), dtype=numpy.float32)))
        found.append(len(card.played))
    assert found == [1, 1]


@pytest.mark.parametrize("dtype", ["int16", "float32"])
@pytest.mark.parametrize("sizes", [[4, 4], [3, 2, 6], [1], []])
def test_a_stream_is_played_alike(monkeypatch: pytest.MonkeyPatch, dtype: str, sizes: list[int]) -> None:
    async def stream() -> AsyncGenerator[Any, None]:
        for size in sizes:
            yield numpy.arange(1, size + 1).reshape(-1, 1).astype(dtype)
        yield None
        raise AssertionError("read beyond the end")

    found = []
    for lib in LIBRARIES:
        card = SoundCard()
        player = _helpers(lib, card, monkeypatch).LocalAudioPlayer()
        asyncio.run(player.play_stream(stream()))
        found.append([piece.tolist() for piece in card.played])
    assert found[0] == found[1]


def test_other_samples_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for lib in LIBRARIES:
        player = _helpers(lib, SoundCard(), monkeypatch).LocalAudioPlayer()
        with pytest.raises(ValueError, match="Unsupported dtype: float64"):
            asyncio.run(player.play(numpy.zeros(3)))


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sounddevice", None)
    microphone = importlib.import_module("specclient.helpers").Microphone()
    with pytest.raises(specclient.ConfigurationError, match=r"specclient\[voice_helpers\]"):
        asyncio.run(microphone.record())


def test_a_recording_is_a_file_of_a_call() -> None:
    from specclient.helpers.microphone import Microphone

    made = Microphone[Any]()._wave_file(numpy.zeros(2, dtype=numpy.int16))
    assert isinstance(made[1], io.BytesIO)
