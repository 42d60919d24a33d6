"""One round of decoding: draft, verify in one pass of the target, keep what was accepted."""
