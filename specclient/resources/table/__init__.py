"""The endpoints that are told completely by a row each."""
