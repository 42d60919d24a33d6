"""HTTP transport: clients, retries, pacing, circuit breaker and server-sent events."""

from specclient.http_transport.http import ResponseBody, SSEStream, Transport
from specclient.http_transport.sse import ServerSentEvent

__all__ = ["ResponseBody", "SSEStream", "ServerSentEvent", "Transport"]
