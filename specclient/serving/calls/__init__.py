"""Requests that call a model: passing through, and sending the result."""
