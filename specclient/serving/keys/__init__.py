"""API keys of the server: storage, authentication, rate limits, budgets."""
