"""The API methods of WebSockets: their operations in the ledger."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from specclient.types.api_method import ApiMethod
from specclient.types.inference_methods import RESPONSE

__all__ = ["METERED_SOCKETS", "TRANSCRIPTION"]

#: A response of a Realtime session.
_REALTIME = ApiMethod(
    name="realtime.connect", verb="GET", path="/realtime", metered=True, operation="realtime"
)
#: A transcription of a caller's speech, which a Realtime session makes beside its responses, by a model of
#: its own.
TRANSCRIPTION: Final = ApiMethod(
    name="realtime.transcription",
    verb="GET",
    path="/realtime",
    metered=True,
    operation="realtime_transcription",
)

#: The method under which the responses of a WebSocket are recorded, by the path of its ``connect``. Others
#: are billed by the minute, and report no usage of a response.
METERED_SOCKETS: Final[Mapping[str, ApiMethod]] = {
    "realtime.connect": _REALTIME,
    "beta.realtime.connect": _REALTIME,
    "responses.connect": RESPONSE,
    "beta.responses.connect": RESPONSE,
}
