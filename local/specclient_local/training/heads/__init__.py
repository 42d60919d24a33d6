"""Train Medusa and EAGLE heads of a frozen target."""
