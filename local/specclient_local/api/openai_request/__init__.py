"""OpenAI's request parameters as the engine's."""
