"""A call: the pipeline that routes, encodes, sends, decodes and records it."""
