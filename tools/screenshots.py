"""Make the pictures of the dashboard and of the HTML report in docs/pictures.

    python tools/screenshots.py            # needs Chromium (apt-get install chromium)

The script starts a server on loopback with a temporary ledger, sends calls to the bundled models, and takes
the pictures with headless Chromium.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

PICTURES = Path(__file__).parent.parent / "docs" / "pictures"
PROMPTS = (
    "def fibonacci(n):",
    "import os\n",
    "class Stack:\n",
    "for name in names:\n",
    "def read_lines(path):\n",
)
CALLS = 40
_CHROMIUM = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--virtual-time-budget=8000",
)  # fmt: skip


def screenshot(browser: str, url: str, target: Path, size: str) -> None:
    """Write a picture of a page.

    Args:
        browser: the path of Chromium.
        url: the page's URL, http: or file:.
        target: the PNG file to write.
        size: width and height in pixels, such as ``1280,1600``.
    """
    with tempfile.TemporaryDirectory() as profile:
        subprocess.run(
            [
                browser,
                *_CHROMIUM,
                f"--user-data-dir={profile}",
                f"--window-size={size}",
                f"--screenshot={target}",
                url,
            ],
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=120,
        )


def make_calls(url: str) -> None:
    """Send completions for both models to a server, with tags."""
    from specclient import OpenAI  # noqa: PLC0415 - after the environment is set

    with OpenAI(base_url=f"{url}/v1", api_key="none", ledger="off") as client:
        for number in range(CALLS):
            model = "local/demo" if number % 3 else "local/demo-target"
            body = {"specclient": {"tags": {"team": ("search", "chat")[number % 2]}}}
            client.completions.create(
                model=model, prompt=PROMPTS[number % len(PROMPTS)], max_tokens=24 + number, extra_body=body
            )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main() -> None:
    """Take both pictures."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        sys.exit("Chromium is not installed: apt-get install chromium")
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        env = {**os.environ, "HOME": folder, "SPECCLIENT_LEDGER": "ledger.sqlite3"}
        port = _free_port()
        url = f"http://127.0.0.1:{port}"
        serve = [
            sys.executable,
            "-m",
            "specclient_cli.main",
            "serve",
            "--model",
            "local/demo",
            "--model",
            "local/demo-target",
        ]
        with subprocess.Popen([*serve, "--port", str(port)], env=env, cwd=folder) as server:
            try:
                while True:
                    try:
                        urllib.request.urlopen(f"{url}/ready", timeout=1).close()
                        break
                    except OSError:
                        time.sleep(0.2)
                make_calls(url)
                time.sleep(2)  # the ledger is written after at most half a second
                screenshot(browser, f"{url}/dashboard", PICTURES / "dashboard.png", "1280,1500")
            finally:
                server.terminate()
        report = home / "costs.html"
        command = [
            sys.executable,
            "-m",
            "specclient_cli.main",
            "cost",
            "report",
            "--format",
            "html",
            "-o",
            str(report),
        ]
        subprocess.run(command, env=env, cwd=folder, check=True)
        screenshot(browser, report.as_uri(), PICTURES / "report.png", "1280,1300")


if __name__ == "__main__":
    main()
