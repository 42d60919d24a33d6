"""Everything between a ready request and its bytes: HTTP, retries, pacing, server-sent events."""

from specclient.transport.http import ResponseBody, SSEStream, Transport
from specclient.transport.sse import ServerSentEvent

__all__ = ["ResponseBody", "SSEStream", "ServerSentEvent", "Transport"]
