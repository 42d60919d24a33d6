"""Everything between a ready request and its bytes: HTTP, retries, pacing, server-sent events."""

from specclient.transport.http import EventStream, Timeout, Transport
from specclient.transport.sse import Event

__all__ = ["Event", "EventStream", "Timeout", "Transport"]
