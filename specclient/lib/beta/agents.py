"""The helpers for hosted agents, under the OpenAI client's module path."""

from specclient.resources.agents_artifacts import AgentResultArtifacts, AsyncAgentResultArtifacts
from specclient.resources.agents_calls import AgentToolError
from specclient.resources.agents_files import (
    AgentFilePreparationError,
    AgentFileStagingError,
    PreparedAgentFiles,
    StagedAgentFile,
)
from specclient.resources.agents_output import agent_text_format
from specclient.resources.agents_results import AgentOutputParseError, AgentTurnResult, AgentTurnResultError
from specclient.resources.agents_sessions import AgentSessionEventStream, AsyncAgentSessionEventStream
from specclient.resources.agents_tools import FunctionTool, function_tool, pydantic_function_tool

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
