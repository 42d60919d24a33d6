"""Utilities used by all other packages: forks, event loops, folders, logging."""
