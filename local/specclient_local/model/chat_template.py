"""Chat templates: rendered in a process of their own, with limits of time, memory and size.

The process (:mod:`specclient_local.model.template_worker`) is started by the first chat, stays, and is
replaced when a template ends it. All engines of this process share it.
"""

from __future__ import annotations

import atexit
import logging
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from specclient.errors import BadRequestError
from specclient.runtime.forks import register_fork_reset
from specclient_local.model import template_worker
from specclient_local.model.helper_process import HelperProcess, signal_name

__all__ = ["ChatRenderer", "chat_renderer"]

_LOG = logging.getLogger("specclient")

RENDER_S = 5.0
"""Maximum processor time of a chat, in seconds; a chat of several megabytes takes a tenth of a second."""
MEMORY_BYTES = 2**30
"""Maximum memory of the process."""
MOST_CHARACTERS = 64 * 2**20
"""Maximum characters of the rendered text: twice the longest request body."""

_WALL_PER_CPU = 10
"""Ratio of the allowed elapsed time to the allowed processor time: a busy machine makes a chat wait."""
_START_S = 120.0
"""Seconds for the process to start."""


class ChatRenderer:
    """Renders chats. Thread-safe; one chat at a time.

    Args:
        seconds: maximum processor time of a chat.
        memory_bytes: maximum memory of the process that renders.
    """

    def __init__(self, seconds: float = RENDER_S, memory_bytes: int = MEMORY_BYTES) -> None:
        self._seconds, self._memory_bytes = seconds, memory_bytes
        self._forget()
        register_fork_reset(self)

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._process = HelperProcess(
            template_worker.__file__, ("jinja2",), self._memory_bytes, "renders chat templates"
        )

    @property
    def pid(self) -> int | None:
        """The process id of the process that renders; None while there is none."""
        return self._process.pid

    def render(
        self,
        template: str,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]],
        special: Mapping[str, Any],
    ) -> str:
        """Return a chat as text, ending with the generation prompt.

        Args:
            template: the Jinja template.
            messages: OpenAI messages, as JSON.
            tools: available tools, in OpenAI's format.
            special: texts of special tokens, by their names in templates, such as ``bos_token``.

        Raises:
            BadRequestError: the template refuses the messages or fails, or exceeds a limit.
            ConfigurationError: the process cannot be started.
        """
        message = {
            "template": template,
            "messages": [{k: v for k, v in each.items() if v is not None} for each in messages],
            "tools": list(tools) or None,
            "special": dict(special),
            "most_characters": MOST_CHARACTERS,
            "seconds": self._seconds,
        }
        with self._lock:
            for _ in range(2):  # a second time, in case something else ended the process
                started = self._process.start()
                wait_s = self._seconds * _WALL_PER_CPU + (_START_S if started else 0)
                answer = self._process.exchange(message, wait_s)
                if answer is not None:
                    break
                overran, code = self._process.overran, self._process.stop()
                reason = self._reason(code, overran=overran)
                _LOG.warning("the process that renders chat templates ended (status %s)", code)
                if reason is not None:
                    raise BadRequestError(
                        f"the model's chat template {reason}; shorten the messages, or choose another model."
                    )
        if answer is None:
            raise BadRequestError(
                "the model's chat template ends the process that renders it; shorten the messages, or choose "
                "another model."
            )
        if (text := answer.get("text")) is not None:
            return str(text)
        raise BadRequestError(f"messages do not fit the model's chat template: {answer.get('error')}")

    def close(self) -> None:
        """End the process; a later chat starts it again."""
        with self._lock:
            self._process.stop()

    def reset_after_fork(self) -> None:
        """Leave the process to the parent."""
        self._process.abandon()
        self._forget()

    def _reason(self, code: int | None, *, overran: bool) -> str | None:
        """Return the reason why a template ended the process; None if something else may have ended it."""
        name = signal_name(code)
        if overran or name == "SIGPROF":
            return f"takes more than {self._seconds:g} s for these messages"
        if name in ("SIGSEGV", "SIGBUS", "SIGABRT", "SIGILL"):
            return f"crashes, or takes more than {self._memory_bytes >> 20} MiB of memory ({name})"
        return None


@cache
def chat_renderer() -> ChatRenderer:
    """Return the renderer of this process."""
    renderer = ChatRenderer()
    atexit.register(renderer.close)
    return renderer
