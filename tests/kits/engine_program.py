"""A small inference server for one model, as a program: ``python engine_program.py --port N [options]``.

It answers as OpenAI's API does, requires the key in ``OWN_KEY``, and prints its options with the key, as
servers do. It imports nothing but the standard library, so that it starts quickly.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

PROGRAM = str(Path(__file__).resolve())
#: Seconds for which processes that a test might leave behind live.
LIFETIME_S = 120


class Handler(BaseHTTPRequestHandler):
    """Answers with the words ``one two three``."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    given: argparse.Namespace

    def do_GET(self) -> None:
        if self.path == "/health":
            self._reply(200, {})
        elif self.path == "/metrics":
            text = (
                "vllm:num_requests_running 1\nvllm:num_requests_waiting 2\n"
                "vllm:spec_decode_num_accepted_tokens_total 30\nvllm:spec_decode_num_draft_tokens_total 40\n"
            )
            self._send(200, "text/plain", text.encode())
        elif self._allowed():
            self._reply(200, {"object": "list", "data": [{"id": name} for name in self.given.models]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if not self._allowed():
            return
        once = self.given.crash_once
        if body.get("stop") == "crash" and not (once and once.exists()):
            if once:
                once.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(self.given.pause)
        usage = {"prompt_tokens": 4, "completion_tokens": 3, "total_tokens": 7}
        kind = "text_completion" if "prompt" in body else "chat.completion"
        kind += ".chunk" if "messages" in body and body.get("stream") else ""
        head = {"id": "1", "created": 1, "model": body["model"]}
        if not body.get("stream"):
            text = "one two three"
            said = (
                {"message": {"role": "assistant", "content": text}} if "messages" in body else {"text": text}
            )
            choice = {"index": 0, "finish_reason": "stop", "logprobs": None, **said}
            self._reply(200, {**head, "object": kind, "choices": [choice], "usage": usage})
            return
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        for word, reason in (("one ", None), ("two ", None), ("three", "stop")):
            said = {"delta": {"content": word}} if "messages" in body else {"text": word}
            self._event({**head, "object": kind, "choices": [{"index": 0, "finish_reason": reason, **said}]})
            time.sleep(self.given.pause / 3)
        self._event({**head, "object": kind, "choices": [], "usage": usage})
        self.wfile.write(b"data: [DONE]\n\n")

    def _event(self, value: Any) -> None:
        self.wfile.write(f"data: {json.dumps(value)}\n\n".encode())
        self.wfile.flush()

    def _allowed(self) -> bool:
        if self.headers.get("authorization") == f"Bearer {os.environ['OWN_KEY']}":
            return True
        self._reply(401, {"error": {"message": "wrong key"}})
        return False

    def _reply(self, status: int, value: Any) -> None:
        self._send(status, "application/json", json.dumps(value).encode())

    def _send(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


def main() -> None:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--models", nargs="+", default=["own"], help="the names of the models")
    parser.add_argument("--starts", type=Path, help="a file to which each start adds a line")
    parser.add_argument("--fail", help="print this and end with status 3")
    parser.add_argument("--fail-once", type=Path, help="fail unless this file exists, and make it")
    parser.add_argument("--fail-later", type=Path, help="fail if this file exists, and make it")
    parser.add_argument(
        "--crash-once", type=Path, help="the file that notes that stop='crash' had its effect"
    )
    parser.add_argument("--delay", type=float, default=0.0, help="seconds before it listens")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds that an answer takes")
    parser.add_argument("--children", type=Path, help="start two processes, and write their ids to this file")
    parser.add_argument("--deaf", action="store_true", help="ignore SIGTERM")
    given = parser.parse_args()
    print(f"options: {vars(given)} api_key={os.environ.get('OWN_KEY')!r}", flush=True)
    if given.starts:
        with given.starts.open("a") as file:
            file.write(f"{os.getpid()}\n")
    if given.fail_once and not given.fail_once.exists():
        given.fail_once.touch()
        given.fail = "RuntimeError: only at first"
    if given.fail_later and given.fail_later.exists():
        given.fail = "RuntimeError: only at first"
    elif given.fail_later:
        given.fail_later.touch()
    if given.fail:
        print("loading the model", given.fail, sep="\n", file=sys.stderr, flush=True)
        sys.exit(3)
    signal.signal(signal.SIGTERM, signal.SIG_IGN if given.deaf else lambda *_: os._exit(0))
    if given.children:
        code = f"import time; time.sleep({LIFETIME_S})"
        own = [
            subprocess.Popen([sys.executable, "-c", code], start_new_session=session)
            for session in (False, True)
        ]
        given.children.write_text(" ".join(str(each.pid) for each in own))
    time.sleep(given.delay)
    Handler.given = given
    ThreadingHTTPServer(("127.0.0.1", given.port), Handler).serve_forever()


if __name__ == "__main__":
    main()
