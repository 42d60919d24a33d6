"""Presets of providers, which can be used without configuring a URL."""
