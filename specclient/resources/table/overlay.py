"""Hand-written facts about endpoints that the generated tables, read from the `openai` package, lack."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

#: The endpoints whose calls a model serves and the provider bills: a call is routed by its ``model``, priced,
#: recorded and limited by budgets. Methods with a resource class are in ``types/inference_methods.py``.
METERED: Final = frozenset(
    {
        "audio.speech.create",
        "audio.transcriptions.create",
        "audio.translations.create",
        "beta.responses.compact",
        "beta.responses.create",
        "images.create_variation",
        "images.edit",
        "images.generate",
        "responses.compact",
        "videos.create",
        "videos.edit",
        "videos.extend",
        "videos.remix",
    }
)

#: Values that replace those of the generated row, by the row's name.
INSTEAD: Final[Mapping[str, Mapping[str, Any]]] = {
    # Its multipart form has typed parts instead of files; ``resources/composite_methods.py`` builds it.
    "realtime.calls.create": {"files": ""},
}

#: The advice in deprecation warnings, by the prefix of the method's name.
_DEPRECATED: Final[Mapping[str, str]] = {
    "beta.assistants.": "OpenAI replaces the Assistants API by the Responses API: use client.responses",
    "beta.threads.": "OpenAI replaces the Assistants API by the Responses API: use client.responses",
    "files.retrieve_content": "use files.content, which gives the bytes of a file",
    "fine_tuning.checkpoints.permissions.retrieve": "use its list, which gives page after page",
    "videos.": "OpenAI shuts the Sora API down on 2026-09-24",
}


def warning_of(name: str) -> str:
    """Return the warning for a call of a deprecated endpoint."""
    instead = next((text for start, text in _DEPRECATED.items() if name.startswith(start)), "")
    return f"{name} is deprecated" + f": {instead}" * bool(instead)
