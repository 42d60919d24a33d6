"""OpenAI's agents resources."""
