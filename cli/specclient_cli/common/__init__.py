"""Shared by the commands: options, state, output, errors."""
