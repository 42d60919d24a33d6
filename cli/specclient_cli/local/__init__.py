"""specclient local: generate, measure, train and export with the local engine."""
