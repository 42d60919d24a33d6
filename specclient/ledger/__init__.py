"""The ledger: one row for each finished call, in SQLite or PostgreSQL, and sums by hour."""
