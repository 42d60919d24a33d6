"""The helpers of the OpenAI client, under its module paths."""

from specclient.structured.tools import pydantic_function_tool, pydantic_responses_function_tool

__all__ = ["pydantic_function_tool", "pydantic_responses_function_tool"]
