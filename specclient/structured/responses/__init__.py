"""Structured output of responses."""
