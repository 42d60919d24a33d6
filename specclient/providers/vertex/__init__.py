"""Google Vertex AI: Gemini and Anthropic's models in Google Cloud, in the dialects of their vendors."""
