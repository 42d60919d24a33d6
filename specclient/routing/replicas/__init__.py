"""The replicas of a fleet's pool: what their caches hold of a prompt, and which of them serves a call."""
