"""OpenAI's Responses API over chat completions, for engines and for providers that lack it."""
