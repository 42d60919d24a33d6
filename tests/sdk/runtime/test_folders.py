"""The folders of a user's files, against platformdirs, which names them for every platform."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal

import platformdirs
import pytest

from specclient.runtime.folders import user_folder


@pytest.mark.parametrize("kind", ["config", "data"])
@pytest.mark.parametrize("home", ["/home/fox", "/home/fox/", "fox", "", None])
@pytest.mark.parametrize("said", ["/srv/fox", "~/fox", "fox", "", " ", None])
def test_as_platformdirs_names_them(
    monkeypatch: pytest.MonkeyPatch, kind: Literal["config", "data"], home: str | None, said: str | None
) -> None:
    for name, value in (("HOME", home), (f"XDG_{kind.upper()}_HOME", said)):
        if value is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, value)
    try:
        expected = Path(getattr(platformdirs, f"user_{kind}_dir")("specclient"))
    except RuntimeError:  # a user without a home
        with pytest.raises(RuntimeError):
            user_folder(kind)
    else:
        assert user_folder(kind) == expected


def test_elsewhere_than_on_linux(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(platformdirs, "user_config_dir", lambda app: f"/Library/{app}")
    assert user_folder("config") == Path("/Library/specclient")
