"""Structured outputs of the Responses API."""
