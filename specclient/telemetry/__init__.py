"""Telemetry: what servers report of speculation, in answers, headers and metrics."""
