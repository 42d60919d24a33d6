"""Pacing: wait before a request that a provider's rate limit would refuse."""
