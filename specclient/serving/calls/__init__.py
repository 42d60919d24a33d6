"""Requests that call a model: parsing, passing through, and writing the response."""
