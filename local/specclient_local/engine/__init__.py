"""The engine: schedules requests, drafts, verifies and streams answers."""
