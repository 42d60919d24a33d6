"""specclient models: providers, models and what they can do."""
