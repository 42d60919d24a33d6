"""Commands of ``specclient serve keys``."""
