"""The engine: exact speculative decoding of local models, in process."""
