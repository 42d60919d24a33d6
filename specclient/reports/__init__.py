"""Cost reports: figures of the ledger by group, as text, JSON, CSV or an HTML page."""
