"""Anthropic's Messages API as HTTP: requests as chat completions, and their results as messages and events.

The server uses it. Endpoints that speak Anthropic's API themselves get the request as the client wrote it
(:class:`specclient.types.request.NativeRequest`).
"""
