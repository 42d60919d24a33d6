"""User folders come from platformdirs, and files are written atomically."""

from __future__ import annotations

from pathlib import Path

import platformdirs
import pytest

from specclient.runtime.folders import user_folder, write_atomically


def test_user_folders_come_from_platformdirs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platformdirs, "user_config_dir", lambda app: f"/config/{app}")
    monkeypatch.setattr(platformdirs, "user_data_dir", lambda app: f"/data/{app}")
    assert user_folder("config") == Path("/config/specclient")
    assert user_folder("data") == Path("/data/specclient")


def test_a_failed_write_keeps_the_old_file(tmp_path: Path) -> None:
    folder = tmp_path / "settings"
    folder.mkdir()
    target = folder / "settings.toml"
    write_atomically(target, "old")
    with pytest.raises(UnicodeEncodeError):
        write_atomically(target, "\ud800")
    assert (target.read_text(encoding="utf-8"), list(folder.iterdir())) == ("old", [target])
