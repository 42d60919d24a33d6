"""The server's own page: what it serves now, and what the ledger knows of what it served."""
