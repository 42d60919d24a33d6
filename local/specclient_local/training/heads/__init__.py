"""Training of Medusa and EAGLE heads for a frozen target."""
