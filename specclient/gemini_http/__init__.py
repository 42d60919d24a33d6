"""Gemini's API as HTTP: requests for content as chat completions, and their results as candidates and events.

The server uses it. Endpoints that speak Gemini's API themselves get the request as the client wrote it
(:class:`specclient.types.request.NativeRequest`).
"""
