"""The version is stated once, in ``specclient/version.py``, and works without installed metadata."""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

from loopback_server import OpenAIServer
from paths import ROOT

import specclient
from specclient.version import VERSION

PROGRAM = """
import importlib.metadata, sys
from specclient import OpenAI
try:
    importlib.metadata.version("specclient")
except importlib.metadata.PackageNotFoundError:
    with OpenAI(base_url=sys.argv[1], api_key="k", ledger="off") as client:
        client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hello"}])
        print(client.user_agent)
"""


def test_the_build_reads_the_version_from_the_package():
    tables = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert tables["project"]["dynamic"] == ["version"]
    source = tables["tool"]["hatch"]["version"]
    found = re.search(source["pattern"], (ROOT / source["path"]).read_text(encoding="utf-8"), re.MULTILINE)
    assert found is not None
    assert found["version"] == VERSION == specclient.__version__


def test_a_hosted_call_works_from_an_uninstalled_source_tree(openai_server: OpenAIServer, tmp_path: Path):
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if not entry.name.startswith(("specclient", "_specclient", "__editable__")):
            (tmp_path / entry.name).symlink_to(entry)
    (tmp_path / "specclient").symlink_to(ROOT / "specclient")
    command = [sys.executable, "-S", "-c", PROGRAM, openai_server.url]
    ended = subprocess.run(
        command, capture_output=True, text=True, timeout=120, cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)}
    )
    assert (ended.stdout.strip(), ended.returncode) == (f"specclient/{VERSION}", 0), ended.stderr
