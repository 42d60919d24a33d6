"""What we know of endpoints that the `openai` package does not state; its own part is generated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

#: The endpoints where a model works for money: such a call is routed by its ``model``, priced and recorded,
#: and budgets hold for it. Those with a resource class of their own say so in ``types/methods.py``.
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
    # Its form has no files, but typed parts; ``resources/behaviours.py`` makes it.
    "realtime.calls.create": {"files": ""},
}
