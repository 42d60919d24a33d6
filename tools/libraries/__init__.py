"""Checks of libraries that use the openai package, each in an environment of its own."""
