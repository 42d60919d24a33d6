"""Reports of the ledger: totals, tables, exports, savings, and an HTML page."""
