"""Structured output of chat completions."""
