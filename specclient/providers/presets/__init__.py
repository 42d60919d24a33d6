"""The providers that are known without configuration, one row each."""
