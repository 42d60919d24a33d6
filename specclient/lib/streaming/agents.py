"""The streams of hosted agents' turns, under the OpenAI client's module path."""

from specclient.resources.agents_turns import AgentSessionStream, AsyncAgentSessionStream

__all__ = ["AgentSessionStream", "AsyncAgentSessionStream"]
