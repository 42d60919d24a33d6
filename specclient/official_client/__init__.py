"""The `openai` package's clients over the call pipeline.

A request of the official client is not sent by its HTTP library. It becomes a call of the pipeline, whose
result returns as the library's response.
"""
