"""Ollama's API as HTTP: requests as chat completions, and their results as JSON objects, one for each line.

The server uses it. Reference: https://github.com/ollama/ollama/blob/main/docs/api.md.
"""
