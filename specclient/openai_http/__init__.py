"""OpenAI's API as HTTP: requests parsed for the call pipeline, and its results as bodies, events and errors.

The server and the transport of the official client share it. It has no server of its own.
"""
