"""The state of a Realtime session as its events report it: its model, audio input and audio output."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["SessionFacts", "member_of"]


class SessionFacts:
    """The facts of one session, as far as they are known.

    Args:
        model: the model of the connection; empty if only the server knows it.
        hears: whether the session has audio from elsewhere, such as a telephone call.

    Attributes:
        model: the model of the connection, or the one that the server reports.
        transcriber: the model that transcribes the caller's speech; empty if there is none.
        hears: whether the session has received audio.
        speaks: whether answers may be spoken.
        max_output_tokens: the most tokens of an answer; None without a limit.
    """

    def __init__(self, model: str, *, hears: bool = False) -> None:
        self.model = model
        self.transcriber = ""
        self.hears, self.speaks = hears, True
        self.max_output_tokens: int | None = None

    def note_client(self, event: Mapping[str, Any]) -> None:
        """Note an event that is sent."""
        kind = event.get("type")
        if kind == "input_audio_buffer.append":
            self.hears = True
        elif kind == "conversation.item.create":
            self.hears = self.hears or _has_audio(event.get("item"))
        elif kind == "session.update":
            spoke = self.speaks
            self._note_session(event.get("session"))
            self.speaks = self.speaks or spoke  # the provider may refuse the event, and go on as before

    def note_server(self, kind: str, event: Any) -> None:
        """Note an event of the server."""
        if kind in ("session.created", "session.updated"):
            self._note_session(getattr(event, "session", None))

    def speaks_in(self, response: Mapping[str, Any]) -> bool:
        """Return whether an answer may be spoken, from the parameters of its request."""
        modalities = response.get("output_modalities", response.get("modalities"))
        return self.speaks if modalities is None else "audio" in modalities

    def _note_session(self, session: Any) -> None:
        model = member_of(session, "model")
        if not self.model and isinstance(model, str):
            self.model = model
        modalities = member_of(session, "output_modalities") or member_of(session, "modalities")
        if isinstance(modalities, list | tuple):
            self.speaks = "audio" in modalities
        for name in ("max_output_tokens", "max_response_output_tokens"):
            if (limit := member_of(session, name)) is not None:
                self.max_output_tokens = limit if isinstance(limit, int) else None
        transcription = member_of(member_of(member_of(session, "audio"), "input"), "transcription")
        found = member_of(transcription or member_of(session, "input_audio_transcription"), "model")
        if isinstance(found, str):
            self.transcriber = found


def member_of(value: Any, name: str) -> Any:
    """Return a member of a mapping, or an attribute of an object; None without one."""
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)


def _has_audio(item: Any) -> bool:
    content = member_of(item, "content")
    return isinstance(content, list | tuple) and any(
        member_of(part, "type") == "input_audio" for part in content
    )
