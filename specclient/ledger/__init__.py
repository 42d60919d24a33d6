"""The ledger: a row for every call, in SQLite or PostgreSQL, and the sums over the rows."""
