"""Helpers under the module paths of the OpenAI client's ``lib``."""

from specclient.structured.tools import pydantic_function_tool, pydantic_responses_function_tool

__all__ = ["pydantic_function_tool", "pydantic_responses_function_tool"]
