"""Structured outputs and the helpers of streams: types to schemas, answers to types, chunks to events."""
