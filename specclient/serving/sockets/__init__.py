"""WebSockets that are passed on to a provider: ``/v1/realtime`` and ``/v1/responses``."""
