"""Speculation telemetry: servers' reports in answers, in headers and in Prometheus counters."""
