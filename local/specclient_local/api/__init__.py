"""OpenAI's API on top of the engine, in process: the backend behind ``local/NAME``."""
