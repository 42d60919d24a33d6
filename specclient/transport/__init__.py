"""Everything between a ready request and its bytes: HTTP, retries, pacing, server-sent events."""

from specclient.transport.http import Body, EventStream, Transport
from specclient.transport.sse import Event

__all__ = ["Body", "Event", "EventStream", "Transport"]
