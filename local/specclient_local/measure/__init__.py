"""The engine, measured: acceptance, the cost of passes, where time goes, and what theory expects of them."""
