"""Generations as OpenAI's response objects and chunks."""
