"""Money: prices, the ledger and reports over it."""
