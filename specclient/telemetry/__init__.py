"""Speculation telemetry: what servers report in answers, in headers and by Prometheus counters."""
