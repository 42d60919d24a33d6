"""The sections of the dashboard, a module for each; ``listing.py`` has them in the order of the page."""
