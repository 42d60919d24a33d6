"""HTTP transport: clients, retries, pacing, circuit breaker and server-sent events."""

from specclient.transport.http import ResponseBody, SSEStream, Transport
from specclient.transport.sse import ServerSentEvent

__all__ = ["ResponseBody", "SSEStream", "ServerSentEvent", "Transport"]
