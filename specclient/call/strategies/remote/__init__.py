"""The strategy remote: a local draft, verified by a server's log-probabilities."""
