"""Helpers for hosted agents, under the OpenAI client's module path."""

from specclient.resources.agents.artifacts import AgentResultArtifacts, AsyncAgentResultArtifacts
from specclient.resources.agents.files import (
    AgentFilePreparationError,
    AgentFileStagingError,
    PreparedAgentFiles,
    StagedAgentFile,
)
from specclient.resources.agents.function_tools import FunctionTool, function_tool, pydantic_function_tool
from specclient.resources.agents.output_types import agent_text_format
from specclient.resources.agents.results import AgentOutputParseError, AgentTurnResult, AgentTurnResultError
from specclient.resources.agents.sessions import AgentSessionEventStream, AsyncAgentSessionEventStream
from specclient.resources.agents.tool_calls import AgentToolError

__all__ = [
    "AgentFilePreparationError",
    "AgentFileStagingError",
    "AgentOutputParseError",
    "AgentResultArtifacts",
    "AgentSessionEventStream",
    "AgentToolError",
    "AgentTurnResult",
    "AgentTurnResultError",
    "AsyncAgentResultArtifacts",
    "AsyncAgentSessionEventStream",
    "FunctionTool",
    "PreparedAgentFiles",
    "StagedAgentFile",
    "agent_text_format",
    "function_tool",
    "pydantic_function_tool",
]
