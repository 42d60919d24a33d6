"""The ``specclient`` command."""
