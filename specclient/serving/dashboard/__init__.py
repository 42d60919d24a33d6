"""The dashboard: a page with the server's current state and figures of the ledger."""
