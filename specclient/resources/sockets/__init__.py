"""WebSocket connections as the user sees them: ``client.realtime.connect()`` and its siblings."""
