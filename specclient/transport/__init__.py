"""Everything between a ready request and its bytes: HTTP, retries, pacing, server-sent events."""
