"""Choice of the best draft candidate by measurement."""
