"""The SDK: an OpenAI-compatible client with routing, speculation telemetry and exact cost accounting."""
