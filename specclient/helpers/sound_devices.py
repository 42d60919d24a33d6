"""The packages for sound, which few programs have."""

from __future__ import annotations

import importlib
from typing import Any, Final

from specclient.errors import ConfigurationError

#: Samples of a second, of recorded and of played sound.
SAMPLE_RATE: Final = 24_000


def numpy() -> Any:
    """Return the module ``numpy``; raises ConfigurationError without it."""
    return _module("numpy")


def sounddevice() -> Any:
    """Return the module ``sounddevice``; raises ConfigurationError without it, or without PortAudio."""
    return _module("sounddevice")


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        reason = f"missing `{name}`: pip install 'specclient[voice_helpers]'"
    except OSError as error:  # sounddevice is a binding of the library PortAudio
        reason = f"`{name}` cannot be used: {error}"
    raise ConfigurationError(f"sound needs the packages of the extra voice_helpers; {reason}")
