"""Pacing: rate limits, queues and concurrency limits of deployments."""
