"""Convert OpenAI's request parameters to the engine's."""
