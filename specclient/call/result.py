"""A call that may be sent, and the result of a complete one: the decoded value, or the decoding error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from specclient.errors import APIError
from specclient.providers import Dialect, dialect
from specclient.types.call import Call
from specclient.types.wire import WireResponse

if TYPE_CHECKING:
    from specclient.call.recorder import CallRecorder
    from specclient.routing.destinations import Destination
    from specclient.types.request import Request
    from specclient.types.route import Decision


class OpenedCall(NamedTuple):
    """A call that may be sent: its destination, its record, and the request as it is sent."""

    decision: Decision
    destination: Destination
    record: CallRecorder
    request: Request


@dataclass(frozen=True, slots=True)
class CallResult:
    """One complete answer with the HTTP response that brought it.

    Attributes:
        value: the decoded answer; None where it could not be decoded.
        reply: the HTTP response; None where an engine in this process answered.
        error: the decoding error; None for a decoded response.
        dialect: the wire format that decodes ``reply``.
        call: the record of a call whose response could not be decoded; None for other calls.
    """

    value: Any
    reply: WireResponse | None = None
    error: APIError | None = None
    dialect: Dialect = dialect("openai")
    call: Call | None = None

    def unwrap(self) -> Any:
        """Return the value, or raise the decoding error."""
        try:
            if self.error is not None:
                raise self.error
            return self.value
        finally:
            del self  # the error's traceback holds this frame: without it, no reference cycle
