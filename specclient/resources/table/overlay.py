"""What we know of endpoints that the `openai` package does not state; its own part is generated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

#: The endpoints where a model works for money: such a call is routed by its ``model``, priced and recorded,
#: and budgets hold for it. Those with a resource class of their own say so in ``types/inference_methods.py``.
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

#: What a row has in the place of what is generated, by its name.
INSTEAD: Final[Mapping[str, Mapping[str, Any]]] = {
    # Its form has no files, but typed parts; ``resources/composite_methods.py`` makes it.
    "realtime.calls.create": {"files": ""},
}

#: What is said of a deprecated call beside that it is, by what its name begins with; in words of ours.
_DEPRECATED: Final[Mapping[str, str]] = {
    "beta.assistants.": "OpenAI replaces the Assistants API by the Responses API: use client.responses",
    "beta.threads.": "OpenAI replaces the Assistants API by the Responses API: use client.responses",
    "files.retrieve_content": "use files.content, which gives the bytes of a file",
    "fine_tuning.checkpoints.permissions.retrieve": "use its list, which gives page after page",
    "videos.": "OpenAI shuts the Sora API down on 2026-09-24",
}


def warning_of(name: str) -> str:
    """Return what a call of a deprecated endpoint is warned with."""
    instead = next((text for start, text in _DEPRECATED.items() if name.startswith(start)), "")
    return f"{name} is deprecated" + f": {instead}" * bool(instead)
