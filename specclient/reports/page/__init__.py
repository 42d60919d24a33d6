"""The cost report as an HTML page."""
