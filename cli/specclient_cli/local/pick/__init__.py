"""specclient local pick: measure draft candidates and write down the best."""
