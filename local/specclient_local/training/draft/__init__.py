"""Training of a smaller model that drafts for a target."""
