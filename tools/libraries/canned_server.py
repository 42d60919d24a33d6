"""A loopback HTTP server with the canned answers, as the hosted API of the checks."""

from __future__ import annotations

import contextlib
import http.server
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final

from libraries.canned_answers import chat_answer, chat_events, response_answer, response_events

#: The model whose name the checks use at this server.
MODEL: Final = "gpt-4o-mini"
_ROUTES: Final[dict[str, tuple[Callable[[Any], Any], Callable[[Any], Iterator[bytes]]]]] = {
    "/v1/chat/completions": (chat_answer, chat_events),
    "/v1/responses": (response_answer, response_events),
}


class CannedHandler(http.server.BaseHTTPRequestHandler):
    """Answers the two routes that create answers, and the list of models."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        row = {"id": MODEL, "object": "model", "created": 1, "owned_by": "openai"}
        known = self.path == "/v1/models"
        self._whole(
            200 if known else 404,
            {"object": "list", "data": [row]} if known else _error(f"no route {self.path}"),
        )

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", "0")))
        if self.path not in _ROUTES:
            return self._whole(404, _error(f"no route {self.path}"))
        request = json.loads(body)
        if request["model"] != MODEL:
            return self._whole(404, _error(f"no model {request['model']}; the only one is {MODEL}"))
        whole, events = _ROUTES[self.path]
        if not request.get("stream"):
            return self._whole(200, whole(request))
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for event in events(request):
            self.wfile.write(b"%x\r\n%b\r\n" % (len(event), event))
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")
        return None

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name of the base class
        """Print nothing."""

    def _whole(self, status: int, body: Any) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def _error(message: str) -> dict[str, Any]:
    error = {"message": message, "type": "invalid_request_error", "param": None, "code": None}
    return {"error": error}


@contextlib.contextmanager
def canned_server() -> Iterator[str]:
    """Run the server in threads, and yield its base URL."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), CannedHandler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
