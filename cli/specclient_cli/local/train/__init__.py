"""specclient local train: train drafts and heads."""
