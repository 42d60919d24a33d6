"""Streams of hosted agents' turns, under the OpenAI client's module path."""

from specclient.resources.agents.turn_stream import AgentSessionStream, AsyncAgentSessionStream

__all__ = ["AgentSessionStream", "AsyncAgentSessionStream"]
