"""OpenAI dialect and provider table: pure translation between OpenAI-shaped calls and wire bodies."""
