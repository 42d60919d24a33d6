"""OpenAI's API over the engine, in process: the backend behind local/NAME."""
