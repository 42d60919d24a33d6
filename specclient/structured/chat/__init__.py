"""Structured outputs of chat completions."""
