"""The table of endpoints: each row describes one API method completely."""
