"""The helpers of streams; see ``chat`` and ``responses``."""
