"""OpenAI's Responses API, served over chat completions."""
