"""Build OpenAI's response objects and chunks from the engine's generations."""
