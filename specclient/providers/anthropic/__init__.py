"""The wire dialect of Anthropic's Messages API."""
